// What socket options, ring sizes and a socket's figures promise.
#include "tests/conformance/party.cuh"
#include "tests/support/device_kind.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::conformance::socket_options {
namespace {

Options options_options() {
  Options options;
  options.sockets_max = 16;
  options.connections_max = 8;
  return options;
}

template <class Kind>
class SocketOptions : public PartiesOnLink<Kind> {
 protected:
  SocketOptions() : PartiesOnLink<Kind>(options_options()) {}
};

using Cases = testing::Types<OnLink<BlockScope, LinkKind::tcp>, OnLink<ThreadScope, LinkKind::p2p>,
                             OnLink<HostScope, LinkKind::tcp>>;
TYPED_TEST_SUITE(SocketOptions, Cases, OnLinkName);

template <class Group>
GPUSOCK_FN std::int64_t get(const Group& group, const Net& net, Socket socket, SocketOption option) {
  std::int64_t value = -99;
  const int error = net.getsockopt(group, socket, option, value);
  return error != 0 ? error * 1000 : value;
}

/// Sets everything on a listener, looks at what the accepted socket has of it, and sets it back.
struct SetAll {
  Report* report;
  Endpoint at;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net) {
    const Socket listener = net.listen(group, at, 4, patience());
    bool starts = get(group, net, listener, SocketOption::no_delay) == 1;
    starts = starts && get(group, net, listener, SocketOption::keep_alive) == 0;
    starts = starts && get(group, net, listener, SocketOption::linger) == -1;
    starts = starts && get(group, net, listener, SocketOption::send_buffer) == -ENOTCONN * 1000;
    note(group, report, 0, starts);
    bool set = net.setsockopt(group, listener, SocketOption::no_delay, 0) == 0;
    set = set && net.setsockopt(group, listener, SocketOption::keep_alive, 1) == 0;
    set = set && net.setsockopt(group, listener, SocketOption::linger, 7) == 0;
    note(group, report, 1, set);
    if (group.thread_rank() == 0) {
      net.getsockname(listener, report->where);
      report->listening.raise();
    }
    const Socket socket = net.accept(group, listener, patience());
    bool inherited = get(group, net, socket, SocketOption::no_delay) == 0;
    inherited = inherited && get(group, net, socket, SocketOption::keep_alive) == 1;
    inherited = inherited && get(group, net, socket, SocketOption::linger) == 7;
    note(group, report, 2, inherited);
    note(group, report, 3, refuses(group, net, socket));
    note(group, report, 4,
         get(group, net, socket, SocketOption::linger) == 7 && get(group, net, socket, SocketOption::error) == 0);
    set = net.setsockopt(group, socket, SocketOption::no_delay, 1) == 0;
    note(group, report, 5, set && get(group, net, socket, SocketOption::no_delay) == 1);
    net.close(group, socket);
    note(group, report, 6, get(group, net, socket, SocketOption::linger));
    note(group, report, 7, net.setsockopt(group, socket, SocketOption::linger, 1));
    net.close(group, listener);
  }

  /// Are values and options that cannot be refused.
  template <class Group>
  GPUSOCK_FN bool refuses(const Group& group, const Net& net, Socket socket) {
    const auto unknown = static_cast<SocketOption>(77);
    std::int64_t value = 0;
    bool all = net.setsockopt(group, socket, SocketOption::no_delay, 2) == -EINVAL;
    all = all && net.setsockopt(group, socket, SocketOption::keep_alive, -1) == -EINVAL;
    all = all && net.setsockopt(group, socket, SocketOption::linger, -2) == -EINVAL;
    all = all && net.setsockopt(group, socket, SocketOption::linger, std::int64_t{1} << 40) == -EINVAL;
    all = all && net.setsockopt(group, socket, SocketOption::send_buffer, 4096) == -EINVAL;
    all = all && net.setsockopt(group, socket, SocketOption::error, 0) == -EINVAL;
    return all && net.setsockopt(group, socket, unknown, 0) == -ENOPROTOOPT &&
           net.getsockopt(group, socket, unknown, value) == -ENOPROTOOPT;
  }
};

struct LeaveWhenEnded {
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    char byte = 0;
    note(group, report, 0, net.recv(group, socket, &byte, 1, 0, patience()));
  }
};

TYPED_TEST(SocketOptions, AreKeptInheritedAndChecked) {
  this->party_.start(SetAll{&this->party_.report(), loopback(TypeParam::kLink)});
  ASSERT_TRUE(this->party_.report().listening.wait());
  this->other_.start(Visit<LeaveWhenEnded>{this->party_.report().where, &this->other_.report(), {}});
  this->other_.join();
  this->party_.join();
  EXPECT_EQ(this->party_.result(0), 1) << "what a socket starts with";
  EXPECT_EQ(this->party_.result(1), 1) << "set on the listener";
  EXPECT_EQ(this->party_.result(2), 1) << "and the accepted socket has it";
  EXPECT_EQ(this->party_.result(3), 1) << "values that cannot be";
  EXPECT_EQ(this->party_.result(4), 1) << "change nothing";
  EXPECT_EQ(this->party_.result(5), 1);
  EXPECT_EQ(this->party_.result(6), -EBADF * 1000) << "closed";
  EXPECT_EQ(this->party_.result(7), -EBADF) << "closed";
  EXPECT_EQ(this->other_.result(0), 0) << "lingering, the connection ends in order";
}

/// Closes at once, without lingering.
struct CloseHard {
  Flag* ready;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    ready->wait(group);
    note(group, report, 0, net.setsockopt(group, socket, SocketOption::linger, 0));
  }
};

/// Waits in poll until the peer is gone, then asks what happened.
struct AskForTheError {
  PollEntry* entry;
  Flag* ready;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    if (group.thread_rank() == 0) {
      *entry = {socket, kPollIn, 0};
      ready->raise();
    }
    group.sync();
    note(group, report, 0, net.poll(group, entry, 1, patience()));
    note(group, report, 1, entry->revents);
    note(group, report, 2, get(group, net, socket, SocketOption::error));
    char byte = 0;
    note(group, report, 3, net.recv(group, socket, &byte, 1, 0, patience()));
    note(group, report, 4, get(group, net, socket, SocketOption::error));
  }
};

TYPED_TEST(SocketOptions, WithoutLingeringClosingResetsAndThePeerLearnsWhy) {
  Mapped<PollEntry> entry(this->party_.context, 1);
  Mapped<Flag> ready(this->party_.context, 1);
  converse(this->party_, this->other_, TypeParam::kLink, AskForTheError{entry.data(), ready.data()},
           CloseHard{ready.data()});
  EXPECT_EQ(this->other_.result(0), 0);
  EXPECT_EQ(this->party_.result(0), 1);
  // The proxy writes the error before it gives the connection up. In between poll says no kPollIn: recv would still
  // wait.
  EXPECT_EQ(this->party_.result(1) & ~kPollIn, kPollErr | kPollHup);
  EXPECT_EQ(this->party_.result(2), ECONNRESET);
  EXPECT_EQ(this->party_.result(3), -ECONNRESET);
  EXPECT_EQ(this->party_.result(4), ECONNRESET) << "it stays";
}

/// A TCP peer that is none of ours, and never reads.
class SilentPeer {
 public:
  SilentPeer() : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof at;
    const int buffer = 4096;
    ::setsockopt(listener_, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    ::bind(listener_, reinterpret_cast<sockaddr*>(&at), bytes);
    ::listen(listener_, 1);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &bytes);
    where_ = Endpoint::parse("127.0.0.1:" + std::to_string(ntohs(at.sin_port)) + ",link=tcp,ring=64K");
  }
  ~SilentPeer() {
    ::close(socket_);
    ::close(listener_);
  }
  SilentPeer(const SilentPeer&) = delete;
  SilentPeer& operator=(const SilentPeer&) = delete;

  const Endpoint& where() const { return where_; }
  void accept() { socket_ = ::accept(listener_, nullptr, nullptr); }
  void send_byte() { ASSERT_EQ(::send(socket_, "x", 1, MSG_NOSIGNAL), 1); }
  /// What is there; waits for something.
  std::string receive() {
    char bytes[64];
    const auto got = ::recv(socket_, bytes, sizeof bytes, 0);
    return got > 0 ? std::string(bytes, static_cast<std::size_t>(got))
                   : std::string(got == 0 ? "an end" : strerror(errno));
  }
  /// Waits until the connection fails; with which errno, 0 if it does not in time.
  int wait_for_error(int timeout_ms) {
    pollfd entry{socket_, 0, 0};  // what has come makes no event
    ::poll(&entry, 1, timeout_ms);
    int error = 0;
    socklen_t bytes = sizeof error;
    ::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &bytes);
    return error;
  }

 private:
  int listener_, socket_ = -1;
  Endpoint where_;
};

constexpr int kMuchLessThanLinger_ms = 20'000;  // closing lingers for 30 s unless told otherwise

/// A host thread's socket that is connected to a plain TCP program.
class ToSilentPeer : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_GE(socket, 0);
    peer.accept();
  }
  /// Until the ring is full, after the operating system's buffers.
  void send_until_full() {
    const std::vector<char> much(1 << 20);
    while (net.send(this_thread(), socket, much.data(), much.size(), 0, Deadline::after_ns(50'000'000)) > 0) {
    }
  }

  Context context{options_options()};
  const Net net = context.net();
  SilentPeer peer;
  const Socket socket = net.connect(this_thread(), peer.where(), patience());
};

class Linger : public ToSilentPeer {};
class Unread : public ToSilentPeer {};

TEST_F(Linger, APeerThatDoesNotReadIsResetWhenTheTimeIsOver) {
  send_until_full();
  ASSERT_EQ(net.setsockopt(this_thread(), socket, SocketOption::linger, 1), 0);
  const std::uint64_t start_ns = clock_ns();
  ASSERT_EQ(net.close(this_thread(), socket), 0);
  EXPECT_EQ(peer.wait_for_error(kMuchLessThanLinger_ms), ECONNRESET);
  EXPECT_GE(clock_ns() - start_ns, 900'000'000u) << "it had a second to read";
}

bool wait_for_input(const Net& net, Socket socket) {
  PollEntry entry{socket, kPollIn, 0};
  return net.poll(this_thread(), &entry, 1, patience()) == 1;
}

TEST_F(Unread, ClosingWithItResetsAPlainTcpConnection) {
  peer.send_byte();
  ASSERT_TRUE(wait_for_input(net, socket));
  ASSERT_EQ(net.close(this_thread(), socket), 0);
  EXPECT_EQ(peer.wait_for_error(kMuchLessThanLinger_ms), ECONNRESET);
}

TEST_F(Unread, WhatWasSentBeforeTheCloseComesBeforeTheReset) {
  peer.send_byte();
  ASSERT_TRUE(wait_for_input(net, socket));
  ASSERT_EQ(net.send(this_thread(), socket, "answer", 6, 0, patience()), 6);
  ASSERT_EQ(net.close(this_thread(), socket), 0);
  EXPECT_EQ(peer.receive(), "answer");
  EXPECT_EQ(peer.receive(), strerror(ECONNRESET));
}

TEST_F(Unread, WhatArrivesAfterTheCloseResetsAPlainTcpConnection) {
  send_until_full();  // so that closing lingers
  ASSERT_EQ(net.close(this_thread(), socket), 0);
  peer.send_byte();
  EXPECT_EQ(peer.wait_for_error(kMuchLessThanLinger_ms), ECONNRESET);
}

TEST_F(Unread, AfterShutdownReadWhatArrivesIsDroppedAndTheEndIsInOrder) {
  ASSERT_EQ(net.shutdown(this_thread(), socket, Shutdown::read), 0);
  ASSERT_EQ(net.send(this_thread(), socket, "one", 3, 0, patience()), 3);
  EXPECT_EQ(peer.receive(), "one");
  peer.send_byte();
  ASSERT_EQ(net.close(this_thread(), socket), 0);
  EXPECT_EQ(peer.receive(), "an end");
}

// The proxy may take the byte before it takes the shutdown.
TEST_F(Unread, AfterShutdownReadWhatHadArrivedIsDroppedAndTheEndIsInOrder) {
  peer.send_byte();
  ASSERT_TRUE(wait_for_input(net, socket));
  ASSERT_EQ(net.shutdown(this_thread(), socket, Shutdown::read), 0);
  ASSERT_EQ(net.close(this_thread(), socket), 0);
  EXPECT_EQ(peer.receive(), "an end");
}

TEST(UnreadWithAHandshake, ThePeerGetsWhatWasSent) {
  for (const bool shares_memory : {true, false}) {
    Options options = options_options();
    options.p2p = shares_memory;
    Context context(options);
    const Net net = context.net();
    const Socket listener = net.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=auto"), 4, patience());
    Endpoint where;
    ASSERT_EQ(net.getsockname(listener, where), 0);
    where.link = LinkKind::automatic;
    const Socket near = net.connect(this_thread(), where, patience());
    const Socket far = net.accept(this_thread(), listener, patience());
    ASSERT_EQ(net.send(this_thread(), near, "hello", 5, 0, patience()), 5);
    ASSERT_EQ(net.send(this_thread(), far, "x", 1, 0, patience()), 1);
    ASSERT_TRUE(wait_for_input(net, near));
    ASSERT_EQ(net.close(this_thread(), near), 0);
    char bytes[8];
    EXPECT_EQ(net.recv(this_thread(), far, bytes, sizeof bytes, kWaitAll, patience()), 5);
    EXPECT_EQ(net.recv(this_thread(), far, bytes, sizeof bytes, 0, patience()), 0)
        << "shares memory: " << shares_memory;
  }
}

/// Two connected sockets of this process's host threads.
class SocketFigures : public testing::TestWithParam<const char*> {
 protected:
  void open(const std::string& listener_options, const std::string& client_options) {
    const std::string host = "127.0.0.1:0,link=" + std::string(GetParam());
    listener_ = net_.listen(this_thread(), Endpoint::parse(host + listener_options), 4, patience());
    ASSERT_GE(listener_, 0);
    Endpoint to = Endpoint::parse(host + client_options), where;
    ASSERT_EQ(net_.getsockname(listener_, where), 0);
    to.port = where.port;
    near_ = net_.connect(this_thread(), to, patience());
    far_ = net_.accept(this_thread(), listener_, patience());
    ASSERT_GE(near_, 0);
    ASSERT_GE(far_, 0);
  }
  void close() {
    net_.close(this_thread(), near_);
    net_.close(this_thread(), far_);
    net_.close(this_thread(), listener_);
  }
  bool is_tcp() const { return std::string(GetParam()) == "tcp"; }

  /// This process's descriptor of the connection from `port`, or -1.
  static int descriptor_of(std::uint16_t port) {
    for (int descriptor = 3; descriptor < 1024; ++descriptor) {
      sockaddr_in local{}, remote{};
      socklen_t bytes = sizeof local, remote_bytes = sizeof remote;
      if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&local), &bytes) == 0 && local.sin_family == AF_INET &&
          ntohs(local.sin_port) == port &&
          ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&remote), &remote_bytes) == 0) {
        return descriptor;
      }
    }
    return -1;
  }

  Context context_{options_options()};
  Net net_ = context_.net();
  Socket listener_ = -1, near_ = -1, far_ = -1;
};

TEST_P(SocketFigures, OptionsReachTheOperatingSystem) {
  open("", "");
  Endpoint local;
  ASSERT_EQ(net_.getsockname(near_, local), 0);
  const int descriptor = descriptor_of(local.port);
  ASSERT_GE(descriptor, 0);
  const auto system_has = [&](int level, int option) {
    int value = -1;
    socklen_t bytes = sizeof value;
    ::getsockopt(descriptor, level, option, &value, &bytes);
    return value != 0;
  };
  const auto becomes = [&](int level, int option, bool wanted) {  // the proxy does it, in a moment
    const std::uint64_t until_ns = clock_ns() + kPatienceNs;
    while (system_has(level, option) != wanted && clock_ns() < until_ns) pause();
    return system_has(level, option) == wanted;
  };
  EXPECT_TRUE(system_has(IPPROTO_TCP, TCP_NODELAY));
  EXPECT_FALSE(system_has(SOL_SOCKET, SO_KEEPALIVE));
  for (const bool on : {true, false}) {
    EXPECT_EQ(net_.setsockopt(this_thread(), near_, SocketOption::keep_alive, on), 0);
    EXPECT_EQ(net_.setsockopt(this_thread(), near_, SocketOption::no_delay, !on), 0);
    EXPECT_TRUE(becomes(SOL_SOCKET, SO_KEEPALIVE, on));
    EXPECT_TRUE(becomes(IPPROTO_TCP, TCP_NODELAY, !on));
  }
  close();
}

TEST_P(SocketFigures, RingsAreAsLargeAsTheEndpointSays) {
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"4K", 4 << 10},
      {"8192", 8192},
      {"128K", 128 << 10},
      {"64M", 64 << 20},
  };
  for (const auto& [text, bytes] : sizes) {
    if (test::like_a_gpu() && bytes > (1 << 20))
      continue;  // there no ring is larger than those the context was made with
    open(std::string(",ring=") + text, ",ring=16K");
    std::vector<std::int64_t> have;
    for (const Socket socket : {near_, far_}) {
      for (const SocketOption option : {SocketOption::send_buffer, SocketOption::receive_buffer}) {
        have.push_back(get(this_thread(), net_, socket, option));
      }
    }
    const std::int64_t near_bytes = is_tcp() ? 16 << 10 : bytes;  // p2p: the acceptor makes the memory of both
    EXPECT_EQ(have, (std::vector<std::int64_t>{near_bytes, near_bytes, bytes, bytes})) << text;
    if (!is_tcp()) {
      const std::vector<char> data(static_cast<std::size_t>(bytes) + 1, 'r');
      EXPECT_EQ(net_.send(this_thread(), near_, data.data(), data.size(), kDontWait), bytes)
          << "exactly a ring full, " << text;
    }
    close();
  }
  Endpoint odd = Endpoint::parse("127.0.0.1:1");
  for (const std::uint32_t bytes : {1u, 2048u, 4097u, 128u << 20}) {
    odd.ring_bytes = bytes;
    EXPECT_EQ(net_.listen(this_thread(), odd), -EINVAL) << bytes;
    EXPECT_EQ(net_.connect(this_thread(), odd), -EINVAL) << bytes;
  }
}

TEST_P(SocketFigures, CountWhatPassed) {
  open(",ring=64K", ",ring=64K");
  std::vector<char> data(50'000, 'x');
  SocketStats stats;
  ASSERT_EQ(net_.stats(near_, stats), 0);
  EXPECT_EQ(stats.bytes_sent + stats.bytes_received + stats.bytes_unsent + stats.bytes_unread, 0u);
  EXPECT_EQ(to_string(stats.link), GetParam());
  EXPECT_EQ(stats.send_buffer, 64u << 10);
  ASSERT_EQ(net_.send(this_thread(), near_, data.data(), 1000, kWaitAll, patience()), 1000);
  ASSERT_EQ(net_.send(this_thread(), near_, data.data(), data.size(), kWaitAll, patience()), 50'000)
      << "may go past the ring";
  ASSERT_EQ(net_.recv(this_thread(), far_, data.data(), 50'000, kPeek | kWaitAll, patience()), 50'000)
      << "so much has arrived";
  ASSERT_EQ(net_.recv(this_thread(), far_, data.data(), 40'000, 0, patience()), 40'000);
  ASSERT_EQ(net_.recv(this_thread(), far_, data.data(), 1000, kPeek | kWaitAll, patience()), 1000);
  ASSERT_EQ(net_.recv(this_thread(), far_, data.data(), 11'000, kPeek | kWaitAll, patience()), 11'000)
      << "all has arrived";
  ASSERT_EQ(net_.stats(near_, stats), 0);
  EXPECT_EQ(stats.bytes_sent, 51'000u);
  EXPECT_EQ(stats.bytes_unsent, is_tcp() ? 0u : 11'000u);
  ASSERT_EQ(net_.stats(far_, stats), 0);
  EXPECT_EQ(stats.bytes_received, 40'000u);
  EXPECT_EQ(stats.bytes_unread, 11'000u);
  EXPECT_EQ(stats.bytes_sent, 0u);
  EXPECT_EQ(net_.stats(listener_, stats), -ENOTCONN);
  EXPECT_EQ(net_.stats(12345678, stats), -EBADF);
  close();
  EXPECT_EQ(net_.stats(near_, stats), -EBADF);
}

INSTANTIATE_TEST_SUITE_P(Links, SocketFigures, testing::Values("tcp", "p2p"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace gpusock::conformance::socket_options
