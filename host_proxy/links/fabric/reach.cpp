#include "host_proxy/links/fabric/reach.hpp"

#include <algorithm>
#include <cstring>

namespace gpusock::proxy::fabric {
namespace {

bool is_same(const Endpoint& a, const Endpoint& b) {
  return a.family == b.family && std::memcmp(a.address, b.address, a.family == 4 ? 4 : 16) == 0;
}

/// A link-local address means nothing without its interface.
bool is_link_local(const Endpoint& at) {
  return at.family == 6 && at.address[0] == 0xfe && (at.address[1] & 0xc0) == 0x80;
}

}  // namespace

std::size_t choose_address(std::span<const ProviderAddress> addresses, const Endpoint& local) {
  using Kind = ProviderAddress::Kind;
  const auto has_ip = [&](const std::string& domain) {
    return std::any_of(addresses.begin(), addresses.end(),
                       [&](const auto& each) { return each.kind == Kind::ip && each.domain == domain; });
  };
  const auto serves_any = [&](const ProviderAddress& each) {
    if (each.kind == Kind::ip) return local.is_loopback() && !is_link_local(each.ip);
    return each.kind == Kind::own || !has_ip(each.domain);
  };
  const auto same = std::find_if(addresses.begin(), addresses.end(),
                                 [&](const auto& each) { return each.kind == Kind::ip && is_same(each.ip, local); });
  const auto found = same != addresses.end() ? same : std::find_if(addresses.begin(), addresses.end(), serves_any);
  return found == addresses.end() ? kNowhere : static_cast<std::size_t>(found - addresses.begin());
}

}  // namespace gpusock::proxy::fabric
