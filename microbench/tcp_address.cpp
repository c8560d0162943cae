#include "tcp_address.hpp"

#include "program/socket_failure.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <cstring>

namespace bench {

gpusock::Endpoint to_endpoint(const sockaddr_storage& storage) {
  gpusock::Endpoint endpoint;
  if (storage.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
    endpoint.family = 4;
    endpoint.port = ntohs(address.sin_port);
    std::memcpy(endpoint.address, &address.sin_addr, 4);
  } else if (storage.ss_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(storage);
    endpoint.family = 6;
    endpoint.port = ntohs(address.sin6_port);
    endpoint.scope_id = address.sin6_scope_id;
    std::memcpy(endpoint.address, &address.sin6_addr, 16);
  }
  return endpoint;
}

namespace {

template <class Ask>
gpusock::Endpoint end_of(int descriptor, Ask ask) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  if (ask(descriptor, reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) return {};
  return to_endpoint(storage);
}

[[noreturn]] void fail_to_listen(const gpusock::Endpoint& at) {
  const int error = errno;
  throw gpusock::program::SocketFailure("listening at " + at.host_port(), gpusock::program::Attempt::listening, error,
                                        at);
}

}  // namespace

TcpAddress to_tcp_address(const gpusock::Endpoint& endpoint) {
  TcpAddress result;
  if (endpoint.family == 6) {
    auto& address = reinterpret_cast<sockaddr_in6&>(result.storage);
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(endpoint.port);
    address.sin6_scope_id = endpoint.scope_id;
    std::memcpy(&address.sin6_addr, endpoint.address, 16);
    result.bytes = sizeof address;
  } else {
    auto& address = reinterpret_cast<sockaddr_in&>(result.storage);
    address.sin_family = AF_INET;
    address.sin_port = htons(endpoint.port);
    std::memcpy(&address.sin_addr, endpoint.address, 4);
    result.bytes = sizeof address;
  }
  return result;
}

gpusock::Endpoint local_of(int descriptor) { return end_of(descriptor, getsockname); }
gpusock::Endpoint peer_of(int descriptor) { return end_of(descriptor, getpeername); }

Descriptor listen_tcp(const gpusock::Endpoint& at, int backlog) {
  const TcpAddress address = to_tcp_address(at);
  Descriptor listener(::socket(address.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  const bool made = listener.get() >= 0 && setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                    bind(listener.get(), address.get(), address.bytes) == 0 && ::listen(listener.get(), backlog) == 0;
  if (!made) fail_to_listen(at);
  return listener;
}

std::string host_of(const gpusock::Endpoint& endpoint) {
  const std::string text = endpoint.host_port();
  return text.substr(0, text.rfind(':'));
}

void set_no_delay(int descriptor) {
  const int on = 1;
  if (setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
    throw gpusock::Error(errno, "setting TCP_NODELAY");
}

}  // namespace bench
