#include "param_sync/bootstrap/local_address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <optional>

namespace param_sync::bootstrap {
namespace {

gpusock::Endpoint endpoint_of(const in_addr& address) {
  gpusock::Endpoint endpoint;
  endpoint.family = 4;
  std::memcpy(endpoint.address, &address, sizeof address);
  return endpoint;
}

/// Returns the local address of the route to a network that is reserved for documentation (RFC 5737). Connecting a
/// datagram socket sends nothing.
std::optional<gpusock::Endpoint> address_to_far_hosts() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(9);
  inet_pton(AF_INET, "192.0.2.1", &address.sin_addr);
  socklen_t size = sizeof address;
  const bool known = connect(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(fd);
  return known ? std::optional(endpoint_of(address.sin_addr)) : std::nullopt;
}

std::optional<gpusock::Endpoint> first_interface() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return std::nullopt;
  std::optional<gpusock::Endpoint> found;
  for (const ifaddrs* entry = list; entry != nullptr && !found; entry = entry->ifa_next) {
    const bool usable = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable || entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_in address;
    std::memcpy(&address, entry->ifa_addr, sizeof address);
    found = endpoint_of(address.sin_addr);
  }
  freeifaddrs(list);
  return found;
}

}  // namespace

gpusock::Endpoint local_address() {
  if (const auto address = address_to_far_hosts()) return *address;
  if (const auto address = first_interface()) return *address;
  in_addr loopback;
  loopback.s_addr = htonl(INADDR_LOOPBACK);
  return endpoint_of(loopback);
}

}  // namespace param_sync::bootstrap
