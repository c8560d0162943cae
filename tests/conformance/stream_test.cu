// What a stream promises, on every link and in every scope, between kernels and between a kernel and a host thread.
#include "tests/conformance/party.cuh"

#include <tuple>

namespace gpusock::conformance::streams {
namespace {

constexpr std::uint64_t kRing = 64 << 10;
/// More than the ring, and enough that a CPU moves bytes past it.
constexpr std::uint64_t kBytesMax = 80'000;

/// Sends `total` bytes of the test's stream by calls of drifting sizes.
struct SendStream {
  std::uint8_t* buffer;
  std::uint64_t total;
  std::uint64_t seed;

  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    Sizes sizes(seed, kBytesMax);
    std::uint64_t sent = 0;
    while (sent < total) {
      std::uint64_t bytes = sizes.next();
      if (bytes > total - sent) bytes = total - sent;
      for (std::uint64_t i = group.thread_rank(); i < bytes; i += group.num_threads()) buffer[i] = byte_at(sent + i);
      group.sync();
      const auto result = net.send(group, socket, buffer, bytes, 0, patience());
      if (result != static_cast<std::int64_t>(bytes)) {
        note(group, report, 1, result);
        break;
      }
      sent += bytes;
    }
    note(group, report, 0, static_cast<std::int64_t>(sent));
  }
};

/// Receives until the end of the stream, and counts bytes and those that are wrong.
struct ReceiveStream {
  std::uint8_t* buffer;
  std::uint64_t seed;

  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    Sizes sizes(seed, kBytesMax);
    std::uint64_t received = 0;
    std::int64_t wrong = 0, last = 0;
    for (;;) {
      last = net.recv(group, socket, buffer, sizes.next(), 0, patience());
      if (last <= 0) break;
      if (group.thread_rank() == 0) {
        for (std::int64_t i = 0; i < last; ++i) wrong += buffer[i] != byte_at(received + static_cast<std::uint64_t>(i));
      }
      received += static_cast<std::uint64_t>(last);
      group.sync();
    }
    note(group, report, 0, static_cast<std::int64_t>(received));
    note(group, report, 1, wrong);
    note(group, report, 2, last);
  }
};

/// Both: sends, ends its direction, and goes on receiving.
struct SendThenReceive {
  SendStream send;
  ReceiveStream receive;

  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    send(group, net, socket, report);
    note(group, report, 3, net.shutdown(group, socket, Shutdown::write));
    note(group, report, 4, net.send(group, socket, send.buffer, 1, 0, patience()));
    receive(group, net, socket, report);
  }
};

/// Receives all, and only then sends.
struct ReceiveThenSend {
  SendStream send;
  ReceiveStream receive;

  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    receive(group, net, socket, report);
    note(group, report, 3, report->result[0]);
    send(group, net, socket, report + 1);
  }
};

template <class Server, class Client, LinkKind link, bool assisted = true>
struct Case {
  using ServerScope = Server;
  using ClientScope = Client;
  static constexpr LinkKind kLink = link;
  static constexpr bool kAssisted = assisted;  ///< do waiting callers run the proxy's step, or is its thread alone
};

template <class Kind>
class StreamPromise : public testing::Test {
 protected:
  static Options options() {
    Options options;
    options.ring_bytes = kRing;
    options.sockets_max = 64;
    options.connections_max = 4;
    options.assist = Kind::kAssisted;
    return options;
  }

  Party<typename Kind::ServerScope> server_{options()};
  Party<typename Kind::ClientScope> client_{options()};
  DeviceBuffer<std::uint8_t> server_buffer_{server_.context, kBytesMax};
  DeviceBuffer<std::uint8_t> client_buffer_{client_.context, kBytesMax};
  // Host threads cannot touch device memory, so they have buffers of their own.
  Mapped<std::uint8_t> server_host_{server_.context, kBytesMax};
  Mapped<std::uint8_t> client_host_{client_.context, kBytesMax};

  std::uint8_t* server_data() { return Kind::ServerScope::kKernel ? server_buffer_.data() : server_host_.data(); }
  std::uint8_t* client_data() { return Kind::ClientScope::kKernel ? client_buffer_.data() : client_host_.data(); }
};

#if defined(__CUDACC__)
// Each case takes nvcc seconds: every scope, link and direction once, not all of them together.
using Cases =
    testing::Types<Case<ThreadScope, WarpScope, LinkKind::tcp>, Case<BlockScope, BlockScope, LinkKind::tcp>,
                   Case<BlockScope, HostScope, LinkKind::p2p>, Case<WarpScope, ThreadScope, LinkKind::automatic>>;
#else
using Cases =
    testing::Types<Case<ThreadScope, ThreadScope, LinkKind::tcp>, Case<WarpScope, WarpScope, LinkKind::tcp>,
                   Case<BlockScope, BlockScope, LinkKind::tcp>, Case<BlockScope, HostScope, LinkKind::tcp>,
                   Case<HostScope, WarpScope, LinkKind::tcp>, Case<ThreadScope, ThreadScope, LinkKind::p2p>,
                   Case<WarpScope, WarpScope, LinkKind::p2p>, Case<BlockScope, BlockScope, LinkKind::p2p>,
                   Case<BlockScope, HostScope, LinkKind::p2p>, Case<HostScope, ThreadScope, LinkKind::p2p>,
                   Case<BlockScope, WarpScope, LinkKind::automatic>, Case<WarpScope, ThreadScope, LinkKind::tcp, false>,
                   Case<HostScope, BlockScope, LinkKind::tcp, false>>;
#endif

struct CaseName {
  template <class Kind>
  static std::string GetName(int) {
    std::string link(to_string(Kind::kLink));
    return link + "_" + Kind::ServerScope::kName + "_" + Kind::ClientScope::kName +
           (Kind::kAssisted ? "" : "_ThreadAlone");
  }
};
TYPED_TEST_SUITE(StreamPromise, Cases, CaseName);

TYPED_TEST(StreamPromise, EveryByteArrivesInOrderWhateverTheSizes) {
  // Many bytes where they cost least to make and to check, on each link.
  const bool many = TypeParam::ServerScope::kThreads == 1 && TypeParam::ClientScope::kThreads == 1;
  const int total = many ? scaled(100'000'000, 1'000'000) : scaled(3'000'000, 1'000'000);
  converse(this->server_, this->client_, TypeParam::kLink, ReceiveStream{this->server_data(), 3},
           SendStream{this->client_data(), static_cast<std::uint64_t>(total), 4});
  EXPECT_EQ(this->client_.result(0), total) << "sent; error " << this->client_.result(1);
  EXPECT_EQ(this->server_.result(0), total) << "received";
  EXPECT_EQ(this->server_.result(1), 0) << "wrong bytes";
  EXPECT_EQ(this->server_.result(2), 0) << "the stream ended in order";
}

TYPED_TEST(StreamPromise, TheAcceptingSideSendsAsWell) {
  constexpr std::uint64_t kTotal = 300'000;
  converse(this->server_, this->client_, TypeParam::kLink, SendStream{this->server_data(), kTotal, 5},
           ReceiveStream{this->client_data(), 6});
  EXPECT_EQ(this->client_.result(0), static_cast<std::int64_t>(kTotal));
  EXPECT_EQ(this->client_.result(1), 0) << "wrong bytes";
  EXPECT_EQ(this->client_.result(2), 0);
}

TYPED_TEST(StreamPromise, AfterShutdownOfWritingThePeersBytesStillArrive) {
  constexpr std::uint64_t kTotal = 100'000;
  Mapped<Report> spare(this->server_.context, 2);
  Endpoint at = loopback(TypeParam::kLink);
  using Served = Serve<ReceiveThenSend>;
  this->server_.start(Served{at, spare.data(), {{this->server_data(), kTotal, 7}, {this->server_data(), 8}}});
  ASSERT_TRUE(spare[0].listening.wait());
  using Visitor = Visit<SendThenReceive>;
  this->client_.start(
      Visitor{spare[0].where, &this->client_.report(), {{this->client_data(), kTotal, 9}, {this->client_data(), 10}}});
  this->client_.join();
  this->server_.join();
  EXPECT_EQ(spare[0].result[3], static_cast<std::int64_t>(kTotal)) << "received before the end of the stream";
  EXPECT_EQ(spare[0].result[2], 0) << "shutdown gave the peer the end of the stream";
  EXPECT_EQ(this->client_.result(3), 0) << "shutdown";
  EXPECT_EQ(this->client_.result(4), -EPIPE) << "sending after it";
  EXPECT_EQ(this->client_.result(0), static_cast<std::int64_t>(kTotal)) << "received from the peer after shutdown";
  EXPECT_EQ(this->client_.result(1), 0) << "wrong bytes";
}

/// Sends until nothing more is taken, then lets the reader go and sends some more.
struct FillThenWait {
  std::uint8_t* buffer;
  Flag* full;
  std::uint64_t limit;  ///< bytes, of which there must be room for fewer
  std::uint64_t rest;   ///< bytes sent once the reader reads

  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    std::uint64_t sent = 0;
    std::int64_t late = 0;
    std::int64_t refused = 0;
    while (refused >= 0 && sent < limit) {
      const std::uint64_t bytes = fill(group, sent, limit);
      std::int64_t result = net.send(group, socket, buffer, bytes, kDontWait);
      if (result < 0) {
        // The reader stands still. On tcp the operating system's buffers must fill as well, and a machine that is busy
        // may take longer for that than this send waits: it is full when there is no room for a byte even after that.
        result = late = net.send(group, socket, buffer, bytes, 0, Deadline::after_ns(20'000'000));
        if (result < 0) result = refused = net.send(group, socket, buffer, 1, kDontWait);
      }
      if (result > 0) sent += static_cast<std::uint64_t>(result);
    }
    note(group, report, 2, late);
    note(group, report, 3, refused);
    if (group.thread_rank() == 0) full->raise();
    group.sync();
    for (const std::uint64_t end = sent + rest; sent < end;) {
      const auto result = net.send(group, socket, buffer, fill(group, sent, end), 0, patience());
      if (result < 0) break;
      sent += static_cast<std::uint64_t>(result);
    }
    note(group, report, 0, static_cast<std::int64_t>(sent));
  }

  /// Puts what follows the bytes sent into the buffer. Returns how many bytes these are.
  template <class Group>
  GPUSOCK_FN std::uint64_t fill(const Group& group, std::uint64_t sent, std::uint64_t end) {
    const std::uint64_t bytes = kBytesMax < end - sent ? kBytesMax : end - sent;
    group.sync();  // a send is over for all before its bytes change
    for (std::uint64_t i = group.thread_rank(); i < bytes; i += group.num_threads()) buffer[i] = byte_at(sent + i);
    group.sync();
    return bytes;
  }
};

struct WaitThenReceive {
  Flag* full;
  ReceiveStream receive;

  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    full->wait(group);
    receive(group, net, socket, report);
  }
};

TYPED_TEST(StreamPromise, AReaderThatStopsLosesNothingAndTheSenderIsToldInTime) {
  constexpr std::uint64_t kLimit = 64'000'000;  // more than the operating system buffers for a reader that never read
  constexpr std::uint64_t kRest = 300'000;
  Mapped<Flag> full(this->server_.context, 1);
  converse(this->server_, this->client_, TypeParam::kLink, WaitThenReceive{full.data(), {this->server_data(), 11}},
           FillThenWait{this->client_data(), full.data(), kLimit, kRest});
  EXPECT_EQ(this->client_.result(2), -ETIMEDOUT) << "the send that had to wait";
  EXPECT_EQ(this->client_.result(3), -EAGAIN) << "the send that would not wait";
  EXPECT_GT(this->client_.result(0), static_cast<std::int64_t>(kRest)) << "there was room for something";
  EXPECT_EQ(this->server_.result(0), this->client_.result(0)) << "received what was sent";
  EXPECT_EQ(this->server_.result(1), 0) << "wrong bytes";
}

/// Sends two records of known sizes.
struct SendTwo {
  std::uint8_t* buffer;
  Flag* first_read;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    for (std::uint64_t i = group.thread_rank(); i < 1000; i += group.num_threads()) buffer[i] = byte_at(i);
    group.sync();
    note(group, report, 0, net.send(group, socket, buffer, 300, kMore, patience()));
    note(group, report, 1, net.send(group, socket, buffer + 300, 200, 0, patience()));
    first_read->wait(group);
    note(group, report, 2, net.send(group, socket, buffer + 500, 500, kWaitAll, patience()));
  }
};

struct ReceiveWhole {
  std::uint8_t* buffer;
  Flag* first_read;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    note(group, report, 0, net.recv(group, socket, buffer, 0, 0, patience()));
    note(group, report, 1, net.recv(group, socket, buffer, 1000, kWaitAll, Deadline::after_ns(5'000'000)));
    note(group, report, 2, net.recv(group, socket, buffer, 500, kWaitAll, patience()));
    note(group, report, 3, net.recv(group, socket, buffer, 1, kDontWait));
    if (group.thread_rank() == 0) first_read->raise();
    note(group, report, 4, net.recv(group, socket, buffer + 500, 1000, kWaitAll, patience()));
    note(group, report, 5, net.recv(group, socket, buffer, 1, 0, patience()));
    if (group.thread_rank() == 0) {
      std::int64_t wrong = 0;
      for (std::uint64_t i = 500; i < 1000; ++i) wrong += buffer[i] != byte_at(i);
      report->result[0] += wrong;
    }
  }
};

TYPED_TEST(StreamPromise, WaitAllTakesAllOrNothing) {
  Mapped<Flag> read(this->server_.context, 1);
  converse(this->server_, this->client_, TypeParam::kLink, ReceiveWhole{this->server_data(), read.data()},
           SendTwo{this->client_data(), read.data()});
  EXPECT_EQ(this->client_.result(0), 300);
  EXPECT_EQ(this->client_.result(1), 200);
  EXPECT_EQ(this->client_.result(2), 500);
  EXPECT_EQ(this->server_.result(0), 0) << "nothing wanted is had at once, and no byte was wrong";
  EXPECT_EQ(this->server_.result(1), -ETIMEDOUT) << "not all came in time";
  EXPECT_EQ(this->server_.result(2), 500) << "and nothing was consumed by that";
  EXPECT_EQ(this->server_.result(3), -EAGAIN);
  EXPECT_EQ(this->server_.result(4), 500) << "the stream ended: what there was";
  EXPECT_EQ(this->server_.result(5), 0) << "the end";
}

}  // namespace
}  // namespace gpusock::conformance::streams
