// Ring memory that is made with its context and not later.
#include "connected.hpp"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

namespace gpusock::test {
namespace {

/// A plain TCP client that has sent one byte.
class PlainClient {
 public:
  PlainClient(const Endpoint& to, char byte) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(to.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                ::send(socket_, &byte, 1, 0) == 1;
  }
  ~PlainClient() { ::close(socket_); }
  PlainClient(const PlainClient&) = delete;
  PlainClient& operator=(const PlainClient&) = delete;

  bool connected;

 private:
  int socket_;
};

TEST(Rings, PlainClientsForWhomThereAreNoneYetWaitTheirTurn) {
  constexpr int kConnections = 2, kClients = 5;
  Options options;
  options.connections_max = kConnections;
  options.ring_bytes = 4 << 10;
  Context context(options);
  const Net net = context.net();
  const HostListener listener(context, "tcp");
  std::vector<std::unique_ptr<PlainClient>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<PlainClient>(listener.at, static_cast<char>('a' + i)));
    ASSERT_TRUE(clients.back()->connected);
  }
  std::vector<Socket> sockets{listener.accept(), listener.accept()};
  EXPECT_EQ(net.accept(this_thread(), listener.socket, Deadline::after_ns(5'000'000)), -ETIMEDOUT)
      << "all ring memory is in use";
  std::string got;
  for (int i = 0; i < kClients; ++i) {
    char byte = 0;
    EXPECT_EQ(net.recv(this_thread(), sockets[static_cast<std::size_t>(i)], &byte, 1, 0, patience()), 1) << i;
    got += byte;
    net.close(this_thread(), sockets[static_cast<std::size_t>(i)]);
    clients[static_cast<std::size_t>(i)].reset();
    if (i + kConnections < kClients) sockets.push_back(listener.accept());
  }
  EXPECT_EQ(got, "abcde");
}

}  // namespace
}  // namespace gpusock::test
