#include "plain_types/socket_address.hpp"

#include <netinet/in.h>

#include <cstring>

namespace gpusock::detail {

SocketAddress::SocketAddress(const ResolvedEndpoint& endpoint) {
  if (endpoint.family == 4) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(storage);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(endpoint.port);
    std::memcpy(&v4.sin_addr, endpoint.address, sizeof v4.sin_addr);
    bytes = sizeof v4;
  } else {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(storage);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(endpoint.port);
    v6.sin6_scope_id = endpoint.scope_id;
    std::memcpy(&v6.sin6_addr, endpoint.address, sizeof v6.sin6_addr);
    bytes = sizeof v6;
  }
}

Endpoint endpoint_of(const sockaddr& address) {
  Endpoint endpoint;
  if (address.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    endpoint.family = 4;
    endpoint.port = ntohs(v4.sin_port);
    std::memcpy(endpoint.address, &v4.sin_addr, sizeof v4.sin_addr);
  } else if (address.sa_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    endpoint.family = 6;
    endpoint.port = ntohs(v6.sin6_port);
    endpoint.scope_id = v6.sin6_scope_id;
    std::memcpy(endpoint.address, &v6.sin6_addr, sizeof v6.sin6_addr);
  }
  return endpoint;
}

}  // namespace gpusock::detail
