#pragma once
/// @file Addresses as the operating system's sockets take them, and the descriptors of such sockets.

#include <gpusock/gpusock.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace bench {

/// A descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(Descriptor&& other) noexcept : number_(other.number_) { other.number_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

struct TcpAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// The endpoint's first address.
TcpAddress to_tcp_address(const gpusock::Endpoint& endpoint);

/// Converts an address of the operating system. If it is neither IPv4 nor IPv6, the endpoint has no address.
gpusock::Endpoint to_endpoint(const sockaddr_storage& storage);

/// The address of a socket's local end, and of its peer's end.
gpusock::Endpoint local_of(int descriptor);
gpusock::Endpoint peer_of(int descriptor);

/// Makes a socket that listens at `at` and does not block. Throws program::SocketFailure.
Descriptor listen_tcp(const gpusock::Endpoint& at, int backlog);

/// "[::1]:7000" without the port: "[::1]".
std::string host_of(const gpusock::Endpoint& endpoint);

/// Sends small pieces at once. Throws Error.
void set_no_delay(int descriptor);

}  // namespace bench
