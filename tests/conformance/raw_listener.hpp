#pragma once
// A plain TCP listener of the operating system, for tests of what gpusock's connect() meets.
#include "tests/conformance/party.cuh"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string_view>

namespace gpusock::conformance {

/// A port of this host on which no program listens, or one that does not speak gpusock.
class RawListener {
 public:
  RawListener() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address_;
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address_), bytes), 0);
    getsockname(socket_, reinterpret_cast<sockaddr*>(&address_), &bytes);
  }
  ~RawListener() { ::close(socket_); }
  void listen() { EXPECT_EQ(::listen(socket_, 8), 0); }
  /// Accepts a connection, reads what it says first, answers with these bytes, and ends it in order.
  void answer_one(std::string_view answer) {
    const int accepted = ::accept(socket_, nullptr, nullptr);
    char hello[48];
    EXPECT_EQ(::recv(accepted, hello, sizeof hello, MSG_WAITALL), static_cast<ssize_t>(sizeof hello));
    EXPECT_EQ(::send(accepted, answer.data(), answer.size(), MSG_NOSIGNAL), static_cast<ssize_t>(answer.size()));
    ::close(accepted);
  }
  Endpoint endpoint(LinkKind link) const {
    Endpoint endpoint = loopback(link);
    endpoint.port = ntohs(address_.sin_port);
    return endpoint;
  }

 private:
  int socket_;
  sockaddr_in address_{};
};

}  // namespace gpusock::conformance
