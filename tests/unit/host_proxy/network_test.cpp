// TCP connections as PosixNetwork shows them, where Linux's own words would mislead.
#include "host_proxy/net/posix_network.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace gpusock::proxy {
namespace {

/// Accepts one connection, and ends it with an end of the stream and a reset right behind it.
class RudePeer {
 public:
  RudePeer() : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(::listen(listener_, 1), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    endpoint_ = Endpoint::parse("127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
  }
  ~RudePeer() { ::close(listener_); }
  const Endpoint& endpoint() const { return endpoint_; }

  void end_and_reset() {
    const int socket = ::accept(listener_, nullptr, nullptr);
    ASSERT_GE(socket, 0);
    const linger abort{1, 0};
    EXPECT_EQ(::shutdown(socket, SHUT_WR), 0);
    EXPECT_EQ(::setsockopt(socket, SOL_SOCKET, SO_LINGER, &abort, sizeof abort), 0);
    ::close(socket);  // both have arrived when this returns: loopback
  }

 private:
  int listener_;
  Endpoint endpoint_;
};

TEST(PosixNetwork, AResetBehindThePeersEndIsAResetToWhoHasJustConnected) {
  PosixNetwork network;
  RudePeer peer;
  int error = 0;
  const auto stream = network.connect(peer.endpoint(), error);
  ASSERT_NE(stream, nullptr) << strerror(error);
  peer.end_and_reset();
  EXPECT_EQ(stream->connected(), -ECONNRESET);
  char byte = 0;
  const iovec into{&byte, 1};
  EXPECT_EQ(stream->read({&into, 1}), 0);  // the end did come first
}

TEST(PosixNetwork, LeavesTheStandardStreamsClosedWhereTheProgramHasClosedThem) {
  EXPECT_EXIT(
      {
        for (const int stream : {STDIN_FILENO, STDOUT_FILENO}) ::close(stream);
        PosixNetwork network;  // has an epoll and an eventfd
        int error = 0;
        const auto listener = network.listen(Endpoint::parse("127.0.0.1:0"), 1, error);
        const bool open = ::fcntl(STDIN_FILENO, F_GETFD) >= 0 || ::fcntl(STDOUT_FILENO, F_GETFD) >= 0;
        std::_Exit(listener != nullptr && !open ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

/// How many descriptors fit into this process's table before it grows; 0 if the system does not say.
std::size_t table_size() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("FDSize:")) return std::stoul(line.substr(7));
  }
  return 0;
}

/// While the table grows, a step stands still, for seconds on a busy machine. In a process of its own, whose table is
/// small at first.
TEST(PosixNetwork, TheTableOfDescriptorsDoesNotGrowUnderConnections) {
  EXPECT_EXIT(
      {
        rlimit limit{};
        getrlimit(RLIMIT_NOFILE, &limit);
        const std::size_t count = std::min<std::size_t>(limit.rlim_cur, 4096) / 2;
        PosixNetwork network;
        const std::size_t before = table_size();
        for (std::size_t i = 0; i < count; ++i) {
          if (::dup(STDERR_FILENO) < 0) std::_Exit(2);
        }
        std::_Exit(table_size() == before && before >= count ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gpusock::proxy
