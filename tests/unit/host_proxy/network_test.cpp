// TCP connections as PosixNetwork shows them, where Linux's own words would mislead.
#include "host_proxy/net/posix_network.hpp"
#include "plain_types/socket_address.hpp"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

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

/// A pair of connected streams of a network. The peer is a socket of this test.
class Pair {
 public:
  Pair() {
    int error = 0;
    const auto acceptor = network_.listen(Endpoint::parse("127.0.0.1:0"), 1, error);
    detail::SocketAddress address(acceptor->local());
    EXPECT_EQ(::connect(peer_, address.get(), address.bytes), 0);
    for (const Deadline until = patience(); stream_ == nullptr && !until.passed();) stream_ = acceptor->accept();
    EXPECT_NE(stream_, nullptr);
    stream_->readable = false;
  }
  ~Pair() { ::close(peer_); }

  ByteStream& stream() { return *stream_; }
  void send(const std::string& text, int flags = 0) {
    EXPECT_EQ(::send(peer_, text.data(), text.size(), flags), static_cast<ssize_t>(text.size()));
  }
  void end() { EXPECT_EQ(::shutdown(peer_, SHUT_WR), 0); }
  /// Takes events until one says that there is something to read.
  void poll() {
    for (const Deadline until = patience(); !stream_->readable && !until.passed();) {
      network_.sleep(10'000'000);
      network_.poll();
    }
    EXPECT_TRUE(stream_->readable);
  }
  /// Reads at most so many bytes.
  std::string read(std::size_t most) {
    char bytes[64];
    const iovec into{bytes, most};
    const std::int64_t got = stream_->read({&into, 1});
    return got < 0 ? "error" : std::string(bytes, static_cast<std::size_t>(got));
  }
  /// What a reader gets that believes the stream's flags, as the proxy's links do; "." is the end of the stream.
  std::string read_all(std::size_t until_bytes) {
    std::string all;
    for (const Deadline until = patience(); all.size() < until_bytes && !until.passed();) {
      if (!stream_->readable) poll();
      const std::string got = read(64);
      all += got.empty() ? "." : got == "error" ? "" : got;
      if (stream_->drained) stream_->readable = false;
    }
    return all;
  }

 private:
  PosixNetwork network_;
  int peer_ = ::socket(AF_INET, SOCK_STREAM, 0);
  std::unique_ptr<ByteStream> stream_;
};

TEST(PosixNetwork, AReadThatTakesLessThanItHasRoomForHasDrainedTheStream) {
  Pair pair;
  pair.send("abcdef");
  pair.poll();
  EXPECT_EQ(pair.read(4), "abcd");
  EXPECT_FALSE(pair.stream().drained);
  EXPECT_EQ(pair.read(2), "ef");
  EXPECT_FALSE(pair.stream().drained) << "there may be more";
  EXPECT_EQ(pair.read(2), "error");
  EXPECT_FALSE(pair.stream().drained);
  pair.send("gh");
  pair.poll();
  EXPECT_EQ(pair.read(4), "gh");
  EXPECT_TRUE(pair.stream().drained);
  pair.stream().readable = false;
  pair.send("i");
  pair.poll();
  EXPECT_FALSE(pair.stream().drained) << "an event has come since";
}

TEST(PosixNetwork, AnEndThatCameWithTheLastBytesIsRead) {
  Pair pair;
  pair.send("ab");
  pair.end();
  EXPECT_EQ(pair.read_all(3), "ab.");
}

TEST(PosixNetwork, AnEndThatComesAfterTheEventOfTheBytesBeforeItIsRead) {
  Pair pair;
  pair.send("ab");
  pair.poll();
  pair.end();
  EXPECT_EQ(pair.read_all(3), "ab.");
}

/// A read stops at urgent data, which is skipped, and there is no event for the bytes after it.
TEST(PosixNetwork, BytesAfterUrgentDataAreRead) {
  for (const bool before_the_event : {true, false}) {
    Pair pair;
    pair.send("ab");
    if (!before_the_event) pair.poll();
    pair.send("!", MSG_OOB);
    pair.send("cd");
    EXPECT_EQ(pair.read_all(4), "abcd");
    pair.send("ef");
    EXPECT_EQ(pair.read_all(2), "ef");
  }
}

/// The thread looks at the bell, and then takes what has rung. A ring in between is taken, too, and must not be lost:
/// who rang does not ring again.
TEST(PosixNetwork, EachRingIsReported) {
  constexpr int kRings = 100;
  PosixNetwork network;
  const Deadline until = patience();
  std::atomic<int> reported{0};
  std::thread ringer([&] {
    for (int rings = 0; rings < kRings && !until.passed(); ++rings) {
      network.ring();
      while (reported.load() <= rings && !until.passed()) std::this_thread::yield();
    }
  });
  while (reported.load() < kRings && !until.passed()) {
    if (network.sleep_until_rung(0)) reported.fetch_add(1);
  }
  ringer.join();
  EXPECT_EQ(reported.load(), kRings);
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
