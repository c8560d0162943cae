#include "plain_types/endpoint.hpp"

#include "plain_types/socket_address.hpp"
#include "plain_types/error.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <vector>

namespace gpusock {
namespace {

constexpr std::string_view kLinkNames[kLinkKinds] = {"auto", "p2p", "tcp", "fabric", "verbs"};

void set_address(ResolvedEndpoint& endpoint, const HostAddress& address) {
  std::memcpy(endpoint.address, address.address, sizeof endpoint.address);
  endpoint.scope_id = address.scope_id;
  endpoint.family = address.family;
}

/// "192.0.2.7" or "[2001:db8::1]".
template <class Address>
std::string host_text(const Address& address) {
  char buffer[INET6_ADDRSTRLEN] = "";
  inet_ntop(address.family == 4 ? AF_INET : AF_INET6, address.address, buffer, sizeof buffer);
  if (address.family != 6) return buffer;
  return "[" + std::string(buffer) + (address.scope_id != 0 ? "%" + std::to_string(address.scope_id) : "") + "]";
}

/// True if this is the family of an address. An endpoint that a peer sent may hold any value.
bool is_family(std::uint8_t family) { return family == 4 || family == 6; }

[[noreturn]] void reject(std::string_view text, const std::string& why) {
  throw Error::with_cause(EINVAL,
                          "endpoint '" + std::string(text) + "': " + why +
                              " (expected host:port[,link=auto|p2p|verbs|fabric|tcp][,ring=64K][,type=stream|seqpacket]"
                              "[,or=ADDRESS])");
}

std::uint16_t parse_port(std::string_view text, std::string_view digits) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size() || value > 65535) {
    reject(text, "'" + std::string(digits) + "' is not a port from 0 to 65535");
  }
  return static_cast<std::uint16_t>(value);
}

/// Splits "host:port" or "[v6]:port".
std::pair<std::string, std::string_view> split_host(std::string_view text, std::string_view host_port) {
  if (host_port.starts_with('[')) {
    const auto close = host_port.find(']');
    if (close == std::string_view::npos || host_port.substr(close + 1, 1) != ":") reject(text, "'[' needs ']:port'");
    return {std::string(host_port.substr(1, close - 1)), host_port.substr(close + 2)};
  }
  const auto colon = host_port.rfind(':');
  if (colon == std::string_view::npos) reject(text, "the port is missing");
  if (host_port.find(':') != colon) reject(text, "an IPv6 address stands in brackets, as in [::1]:7000");
  return {std::string(host_port.substr(0, colon)), host_port.substr(colon + 1)};
}

HostAddress to_address(const addrinfo& entry) {
  const Endpoint endpoint = detail::endpoint_of(*entry.ai_addr);
  HostAddress result;
  std::memcpy(result.address, endpoint.address, sizeof result.address);
  result.scope_id = endpoint.scope_id;
  result.family = endpoint.family;
  return result;
}

/// The addresses that an endpoint keeps, each once, in the order of the list. If the list has both families, the result
/// has both, too: this host may lack one of them.
std::vector<HostAddress> choose_addresses(const addrinfo* list) {
  constexpr std::size_t kAddressesMax = 1 + Endpoint::kFurtherMax;
  std::vector<HostAddress> chosen;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    const HostAddress address = to_address(*entry);
    if (!is_family(address.family) || std::find(chosen.begin(), chosen.end(), address) != chosen.end()) continue;
    if (chosen.size() < kAddressesMax) {
      chosen.push_back(address);
    } else if (std::none_of(chosen.begin(), chosen.end(),
                            [&](const auto& other) { return other.family == address.family; })) {
      chosen.back() = address;
      break;
    }
  }
  return chosen;
}

std::vector<HostAddress> look_up(std::string_view text, const std::string& host, int flags) {
  addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list); error != 0) {
    throw Error::with_cause(ENOENT,
                            "endpoint '" + std::string(text) + "': looking up '" + host + "': " + gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  std::vector<HostAddress> addresses = choose_addresses(list);
  if (addresses.empty()) {
    throw Error::with_cause(
        ENOENT, "endpoint '" + std::string(text) + "': '" + host + "' has neither an IPv4 nor an IPv6 address");
  }
  return addresses;
}

/// An address that an option adds: "192.0.2.7" or "[2001:db8::1]".
HostAddress parse_further(std::string_view text, std::string_view value) {
  const bool brackets = value.starts_with('[') && value.ends_with(']');
  const std::string host(brackets ? value.substr(1, value.size() - 2) : value);
  try {
    const HostAddress address = look_up(text, host, AI_NUMERICHOST).front();
    if ((address.family == 6) == brackets) return address;
  } catch (const Error& error) {
    if (error.code().value() != ENOENT) throw;
  }
  reject(text, "'" + std::string(value) + "' is not an address such as 192.0.2.7 or [2001:db8::1]");
}

/// Sets the addresses: those of the host, then those that options add.
void set_addresses(std::string_view text, const std::string& host, const std::vector<std::string_view>& more,
                   Endpoint& endpoint) {
  std::vector<HostAddress> addresses = look_up(text, host, 0);
  for (const std::string_view value : more) addresses.push_back(parse_further(text, value));
  if (addresses.size() > 1 + Endpoint::kFurtherMax) reject(text, "there are more than four addresses");
  set_address(endpoint, addresses.front());
  std::copy(addresses.begin() + 1, addresses.end(), endpoint.further);
}

std::optional<LinkKind> find_link(std::string_view name) {
  for (int kind = 0; kind < kLinkKinds; ++kind) {
    if (name == kLinkNames[kind]) return static_cast<LinkKind>(kind);
  }
  return std::nullopt;
}

}  // namespace

LinkKind detail::default_link() {
  const char* name = std::getenv("GPUSOCK_LINK");
  if (name == nullptr || *name == '\0') return LinkKind::automatic;
  const auto link = find_link(name);
  if (!link)
    throw Error::with_cause(EINVAL, "GPUSOCK_LINK='" + std::string(name) + "' must be auto, p2p, verbs, fabric or tcp");
  return *link;
}

namespace {

/// "64K", "1M" or bytes.
std::uint32_t parse_ring(std::string_view text, std::string_view value) {
  std::uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), bytes);
  const std::string_view unit(end, static_cast<std::size_t>(value.data() + value.size() - end));
  const int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : -1;
  const bool fits = error == std::errc{} && shift >= 0 && bytes <= kRingBytesMax;
  if (!fits || !is_ring_size(bytes << shift)) {
    reject(text, "'" + std::string(value) + "' is not a ring's size: a power of two from 4K to 64M");
  }
  return static_cast<std::uint32_t>(bytes << shift);
}

/// The size as text that parse_ring() takes.
std::string ring_text(std::uint32_t bytes) {
  if (bytes % (1u << 20) == 0) return std::to_string(bytes >> 20) + "M";
  if (bytes % (1u << 10) == 0) return std::to_string(bytes >> 10) + "K";
  return std::to_string(bytes);
}

SocketType parse_type(std::string_view text, std::string_view value) {
  if (value == "stream") return SocketType::stream;
  if (value != "seqpacket") reject(text, "unknown type '" + std::string(value) + "'");
  return SocketType::seqpacket;
}

void parse_option(std::string_view text, std::string_view option, Endpoint& endpoint,
                  std::vector<std::string_view>& more) {
  const auto value = option.substr(std::min(option.size(), option.find('=') + 1));
  if (option.starts_with("link=")) {
    const auto link = find_link(value);
    if (!link) reject(text, "unknown link '" + std::string(value) + "'");
    endpoint.link = *link;
  } else if (option.starts_with("ring=")) {
    endpoint.ring_bytes = parse_ring(text, value);
  } else if (option.starts_with("type=")) {
    endpoint.type = parse_type(text, value);
  } else if (option.starts_with("or=")) {
    more.push_back(value);
  } else {
    reject(text, "unknown option '" + std::string(option) + "'");
  }
}

}  // namespace

std::string_view to_string(LinkKind link) {
  const auto kind = static_cast<unsigned>(link);
  return kind < kLinkKinds ? kLinkNames[kind] : "unknown";  // a peer may have sent any value
}

LinkKind parse_link(std::string_view name) {
  if (const auto link = find_link(name)) return *link;
  throw Error::with_cause(EINVAL,
                          "unknown link '" + std::string(name) + "': there are auto, p2p, verbs, fabric and tcp");
}

Endpoint Endpoint::parse(std::string_view text) {
  Endpoint endpoint;
  endpoint.link = detail::default_link();
  const auto comma = text.find(',');
  std::set<std::string_view> names;
  std::vector<std::string_view> more;
  for (auto rest = comma; rest != std::string_view::npos;) {
    const auto next = text.find(',', rest + 1);
    const std::string_view option = text.substr(rest + 1, next - rest - 1);
    parse_option(text, option, endpoint, more);
    const std::string_view name = option.substr(0, option.find('='));
    if (name != "or" && !names.insert(name).second) reject(text, "'" + std::string(name) + "' is given twice");
    rest = next;
  }
  const auto [host, port] = split_host(text, text.substr(0, comma));
  if (host.empty()) reject(text, "the host is missing; 0.0.0.0 and [::] mean every address");
  endpoint.port = parse_port(text, port);
  set_addresses(text, host, more, endpoint);
  return endpoint;
}

Endpoint Endpoint::of(std::string_view host, std::uint16_t port) {
  const bool bare_v6 = host.find(':') != std::string_view::npos && !host.starts_with('[');
  const std::string address = bare_v6 ? "[" + std::string(host) + "]" : std::string(host);
  if (address.find(',') != std::string::npos) reject(address, "a host's name has no comma");
  return parse(address + ":" + std::to_string(port));
}

int Endpoint::addresses() const {
  if (!is_family(family)) return 0;
  const auto* end = std::find_if_not(std::begin(further), std::end(further),
                                     [](const auto& entry) { return is_family(entry.family); });
  return 1 + static_cast<int>(end - further);
}

Endpoint Endpoint::at_address(int index) const {
  Endpoint one{*this, {}};
  if (index > 0) set_address(one, further[index - 1]);
  return one;
}

std::string ResolvedEndpoint::to_string() const {
  if (family == 0) return host_port();
  std::string text = host_port() + ",link=" + std::string(gpusock::to_string(link));
  if (ring_bytes != 0) text += ",ring=" + ring_text(ring_bytes);
  if (type == SocketType::seqpacket) text += ",type=seqpacket";
  return text;
}

std::string Endpoint::to_string() const {
  std::string text = ResolvedEndpoint::to_string();
  for (int index = 1; index < addresses(); ++index) text += ",or=" + host_text(further[index - 1]);
  return text;
}

std::string ResolvedEndpoint::host_port() const {
  return family == 0 ? "none" : host_text(*this) + ":" + std::to_string(port);
}

std::ostream& operator<<(std::ostream& out, const ResolvedEndpoint& endpoint) { return out << endpoint.to_string(); }
std::ostream& operator<<(std::ostream& out, const Endpoint& endpoint) { return out << endpoint.to_string(); }

bool ResolvedEndpoint::is_loopback() const {
  if (family == 4) return address[0] == 127;
  static constexpr std::uint8_t kLoopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  static constexpr std::uint8_t kMapped[13] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127};  // ::ffff:127.0.0.0/104
  if (family != 6) return false;
  return std::memcmp(address, kLoopback, sizeof kLoopback) == 0 || std::memcmp(address, kMapped, sizeof kMapped) == 0;
}

}  // namespace gpusock
