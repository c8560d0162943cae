#pragma once
/// @file Addresses as the operating system's calls take and return them.

#include "plain_types/endpoint.hpp"

#include <sys/socket.h>

namespace gpusock::detail {

/// An IPv4 or IPv6 address and a port, or room for a call to write one to.
struct SocketAddress {
  SocketAddress() = default;
  explicit SocketAddress(const ResolvedEndpoint& endpoint);

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }

  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
};

/// The address and the port; family 0 if it is neither IPv4 nor IPv6.
Endpoint endpoint_of(const sockaddr& address);

}  // namespace gpusock::detail
