// What records (type=seqpacket) promise: each arrives as it was sent, whoever else sends on the socket.
#include "tests/conformance/party.cuh"

#include <atomic>
#include <memory>
#include <vector>

namespace gpusock::conformance::records {
namespace {

constexpr std::uint64_t kRing = 8 << 10;
constexpr std::uint64_t kLongest = kRing / 2 - 8;

/// `shares_memory` false: the peers agree on tcp, on which records travel as they lie in the rings.
Options record_options(bool shares_memory) {
  Options options;
  options.ring_bytes = kRing;
  options.sockets_max = 8;
  options.connections_max = 8;
  options.p2p = shares_memory;
  return from_environment(options);
}

Endpoint record_endpoint() {
  const std::string instead = name_of(LinkKind::p2p);
  return Endpoint::parse(test_host() + ":0,type=seqpacket,link=" + (instead == "p2p" ? "auto" : instead));
}

template <class Scope, bool shares_memory>
struct RecordCase {
  using ScopeType = Scope;
  static constexpr bool kP2p = shares_memory;
};

template <class Kind>
class Record : public testing::Test {
 protected:
  /// Runs one body on each end of a connection, and waits for both.
  template <class ServerInner, class ClientInner>
  void converse(ServerInner serve, ClientInner visit) {
    party_.start(Serve<ServerInner>{record_endpoint(), &party_.report(), serve});
    ASSERT_TRUE(party_.report().listening.wait());
    ASSERT_GE(party_.result(7), 0) << "listen";
    other_.start(Visit<ClientInner>{party_.report().where, &other_.report(), visit});
    other_.join();
    party_.join();
    ASSERT_GE(other_.result(6), 0) << "connect";
    ASSERT_GE(party_.result(6), 0) << "accept";
  }

  Party<typename Kind::ScopeType> party_{record_options(Kind::kP2p)};
  Party<HostScope> other_{record_options(Kind::kP2p)};
  Mapped<std::uint8_t> buffer_{party_.context, 2 * kRing};
  Mapped<std::uint8_t> other_buffer_{other_.context, 2 * kRing};
};

using Cases = testing::Types<RecordCase<BlockScope, true>, RecordCase<WarpScope, false>,
#if !defined(__CUDACC__)
                             RecordCase<ThreadScope, false>,
#endif
                             RecordCase<HostScope, true>>;
struct CaseName {
  template <class Kind>
  static std::string GetName(int) {
    return std::string(Kind::kP2p ? "p2p_" : "tcp_") + Kind::ScopeType::kName;
  }
};
TYPED_TEST_SUITE(Record, Cases, CaseName);

/// Sends records of drifting lengths, every third from reserved memory, of which only a part is committed.
struct SendRecords {
  std::uint8_t* buffer;
  int count;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    Sizes sizes(21, kLongest);
    std::int64_t result = 0;
    int sent = 0;
    for (; sent < count; ++sent) {
      const std::uint64_t bytes = sizes.next();
      if (sent % 3 == 2) {
        const std::uint64_t more = bytes + 100 < kLongest ? bytes + 100 : kLongest;
        const Span span = net.reserve(group, socket, more, patience());
        result = span.size == static_cast<std::int64_t>(more) ? 0 : span.size - 1000;
        if (result != 0) break;
        fill(group, static_cast<std::uint8_t*>(span.data), bytes, sent);
        result = net.commit(group, socket, bytes);
        if (result != 0) break;
      } else {
        fill(group, buffer, bytes, sent);
        group.sync();
        result = net.send(group, socket, buffer, bytes, sent % 5 == 1 ? kMore : 0, patience());
        if (result != static_cast<std::int64_t>(bytes)) break;
      }
    }
    note(group, report, 0, sent);
    note(group, report, 1, result);
  }
  template <class Group>
  GPUSOCK_FN static void fill(const Group& group, std::uint8_t* to, std::uint64_t bytes, int which) {
    for (std::uint64_t i = group.thread_rank(); i < bytes; i += group.num_threads()) to[i] = byte_at(i + 1000u * which);
  }
};

/// Receives records, every fourth by peeking, until the end.
struct ReceiveRecords {
  std::uint8_t* buffer;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    Sizes sizes(21, kLongest);
    std::int64_t wrong = 0, length = 0;
    int received = 0;
    for (;; ++received) {
      const std::uint64_t expected = sizes.next();
      const std::uint8_t* bytes = buffer;
      const bool peeks = received % 4 == 3;
      if (peeks) {
        const Span span = net.peek(group, socket, kLongest, patience());
        bytes = static_cast<const std::uint8_t*>(span.data);
        length = span.size;
      } else {
        length = net.recv(group, socket, buffer, 2 * kRing, 0, patience());
      }
      if (length <= 0) break;
      if (group.thread_rank() == 0) {
        wrong += length != static_cast<std::int64_t>(expected);
        for (std::int64_t i = 0; i < length; ++i) wrong += bytes[i] != byte_at(i + 1000u * received);
      }
      if (peeks) wrong += net.release(group, socket, static_cast<std::size_t>(length)) != 0;
      group.sync();
    }
    note(group, report, 0, received);
    note(group, report, 1, wrong);
    note(group, report, 2, length);
  }
};

TYPED_TEST(Record, EachArrivesWholeAndByItself) {
  constexpr int kCount = 600;
  this->converse(ReceiveRecords{this->buffer_.data()}, SendRecords{this->other_buffer_.data(), kCount});
  EXPECT_EQ(this->other_.result(0), kCount) << "sent; " << this->other_.result(1);
  EXPECT_EQ(this->party_.result(0), kCount) << "received";
  EXPECT_EQ(this->party_.result(1), 0) << "wrong lengths and bytes";
  EXPECT_EQ(this->party_.result(2), 0) << "the end";
}

TYPED_TEST(Record, TheAcceptingSideSendsAsWell) {
  constexpr int kCount = 200;
  this->converse(SendRecords{this->buffer_.data(), kCount}, ReceiveRecords{this->other_buffer_.data()});
  EXPECT_EQ(this->party_.result(0), kCount) << "sent; " << this->party_.result(1);
  EXPECT_EQ(this->other_.result(0), kCount);
  EXPECT_EQ(this->other_.result(1), 0);
}

/// Sends 10, 20 and 30 bytes, then the longest, then the other side's turn to look.
struct SendFew {
  std::uint8_t* buffer;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    note(group, report, 0, net.send(group, socket, buffer, kLongest + 1, 0, patience()));
    note(group, report, 1, net.reserve(group, socket, kLongest + 1, patience()).size);
    note(group, report, 2, net.send(group, socket, buffer, 0, 0, patience()));
    std::int64_t all = 0;
    for (const std::uint64_t bytes : {std::uint64_t{10}, std::uint64_t{20}, std::uint64_t{30}, kLongest}) {
      all += net.send(group, socket, buffer, bytes, 0, patience());
    }
    note(group, report, 3, all);
    char byte = 0;
    note(group, report, 4, net.recv(group, socket, &byte, 1, 0, patience()));
  }
};

struct ReceiveFew {
  std::uint8_t* buffer;
  PollEntry* entry;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    if (group.thread_rank() == 0) *entry = {socket, kPollIn | kPollOut, 0};
    group.sync();
    const bool both = wait_for(group, net, kPollIn | kPollOut);
    note(group, report, 0, both ? net.recv(group, socket, buffer, 0, kPeek, patience()) : -1);
    note(group, report, 1, net.recv(group, socket, buffer, 4, 0, patience()));
    bool looks = net.peek(group, socket, 19, patience()).size == -EMSGSIZE;
    looks = looks && net.recv(group, socket, buffer, 100, kPeek | kWaitAll, patience()) == 20;
    looks = looks && net.peek(group, socket, 20, patience()).size == 20 && net.release(group, socket, 0) == 0;
    note(group, report, 2, looks && net.recv(group, socket, buffer, 100, kWaitAll, patience()) == 20);
    note(group, report, 3, net.recv(group, socket, buffer, 100, 0, patience()));
    note(group, report, 4, net.recv(group, socket, buffer, kRing, 0, patience()));
    note(group, report, 5, net.recv(group, socket, buffer, kRing, kDontWait));
  }

  /// Polls until these events are there together.
  template <class Group>
  GPUSOCK_FN bool wait_for(const Group& group, const Net& net, int events) {
    const std::uint64_t until_ns = clock_ns() + kPatienceNs;
    int seen = 0;
    do {
      net.poll(group, entry, 1, patience());
      seen = entry->revents;
      seen = static_cast<int>(
          detail::broadcast(group, static_cast<std::uint64_t>(clock_ns() > until_ns ? 0x1000 : seen)));
      group.sync();
    } while (seen != events && seen < 0x1000);
    return seen == events;
  }
};

TYPED_TEST(Record, ShortBuffersCutAndSaySoAndLookingConsumesNothing) {
  Mapped<PollEntry> entry(this->party_.context, 1);
  this->converse(ReceiveFew{this->buffer_.data(), entry.data()}, SendFew{this->other_buffer_.data()});
  EXPECT_EQ(this->other_.result(0), -EMSGSIZE) << "longer than the ring has room for";
  EXPECT_EQ(this->other_.result(1), -EMSGSIZE) << "the same, reserved";
  EXPECT_EQ(this->other_.result(2), 0) << "nothing is no record";
  EXPECT_EQ(this->other_.result(3), static_cast<std::int64_t>(60 + kLongest));
  EXPECT_EQ(this->other_.result(4), 0) << "the peer has ended";
  EXPECT_EQ(this->party_.result(0), 10) << "the next one's length";
  EXPECT_EQ(this->party_.result(1), 10) << "cut to 4 bytes, and the length says so";
  EXPECT_EQ(this->party_.result(2), 1) << "looking, and taking the second";
  EXPECT_EQ(this->party_.result(3), 30) << "the third";
  EXPECT_EQ(this->party_.result(4), static_cast<std::int64_t>(kLongest));
  EXPECT_EQ(this->party_.result(5), -EAGAIN);
}

/// Every block sends its own numbered records on the one socket.
__global__ void send_from_every_block(Net net, Socket socket, int each, std::int64_t* failed) {
  const auto block = this_block();
  __shared__ std::uint32_t record[512];
  Sizes sizes(100 + blockIdx.x, 500);
  for (int i = 0; i < each; ++i) {
    const auto words = static_cast<std::uint32_t>(2 + sizes.next());
    for (std::uint32_t w = threadIdx.x; w < words; w += blockDim.x)
      record[w] = w == 0 ? blockIdx.x : w == 1 ? i : blockIdx.x * 1000003u + i * 31u + w;
    block.sync();
    const auto bytes = static_cast<std::int64_t>(words) * 4;
    if (net.send(block, socket, record, static_cast<std::size_t>(bytes), 0, patience()) != bytes && threadIdx.x == 0)
      ++failed[blockIdx.x];
    block.sync();
  }
}

__global__ void connect_for_others(Net net, Endpoint to, Socket* socket) {
  *socket = net.connect(this_thread(), to, patience());
}

TEST(RecordSenders, ManyBlocksShareOneSocket) {
  constexpr int kBlocks = 5, kEach = 300;
  for (const bool shares_memory : {true, false}) {
    Context senders(record_options(shares_memory)), receiver(record_options(shares_memory));
    const Net net = receiver.net();
    const Socket listener = net.listen(this_thread(), record_endpoint(), 4, patience());
    Endpoint where;
    ASSERT_EQ(net.getsockname(listener, where), 0);
    Mapped<Socket> near(senders, 1);
    Mapped<std::int64_t> failed(senders, kBlocks);
    launch(senders, {.grid = 1, .block = 1}, connect_for_others, senders.net(), where, near.data());
    const Socket far = net.accept(this_thread(), listener, patience());
    senders.synchronize();
    ASSERT_GE(near[0], 0);
    ASSERT_GE(far, 0);
    launch(senders, {.grid = kBlocks, .block = 64}, send_from_every_block, senders.net(), near[0], kEach,
           failed.data());
    std::vector<std::uint32_t> next(kBlocks);
    std::int64_t wrong = 0;
    for (int i = 0; i < kBlocks * kEach; ++i) {
      std::uint32_t record[1024];
      const auto bytes = net.recv(this_thread(), far, record, sizeof record, 0, patience());
      ASSERT_GE(bytes, 8) << "record " << i;
      const std::uint32_t from = record[0];
      ASSERT_LT(from, static_cast<std::uint32_t>(kBlocks));
      EXPECT_EQ(record[1], next[from]++) << "one sender's records keep their order";
      for (std::uint32_t w = 2; w < bytes / 4; ++w) wrong += record[w] != from * 1000003u + record[1] * 31u + w;
    }
    senders.synchronize();
    EXPECT_EQ(wrong, 0);
    for (int i = 0; i < kBlocks; ++i) EXPECT_EQ(failed[i], 0) << "block " << i;
    char byte = 0;
    EXPECT_EQ(net.recv(this_thread(), far, &byte, 1, kDontWait), -EAGAIN) << "and no more";
  }
}

/// Host threads on both ends.
class RecordPair : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    listener_ = net_.listen(this_thread(), record_endpoint(), 4, patience());
    ASSERT_EQ(net_.getsockname(listener_, where_), 0);
  }
  void connect() {
    const std::uint64_t until_ns = clock_ns() + kPatienceNs;
    near_ = -EMFILE;
    while (near_ == -EMFILE && clock_ns() < until_ns) near_ = other_net_.connect(this_thread(), where_, patience());
    far_ = net_.accept(this_thread(), listener_, patience());
    ASSERT_GE(near_, 0);
    ASSERT_GE(far_, 0);
  }

  Context context_{record_options(GetParam())};
  Context other_{record_options(GetParam())};
  Net net_ = context_.net();
  Net other_net_ = other_.net();
  Socket listener_ = -1, near_ = -1, far_ = -1;
  Endpoint where_;
};

TEST_P(RecordPair, AReservationKeepsItsPlaceAndOthersGoOnSending) {
  connect();
  char bytes[64] = {};
  const Span first = other_net_.reserve(this_thread(), near_, 5, patience());
  ASSERT_EQ(first.size, 5);
  EXPECT_EQ(other_net_.reserve(this_thread(), near_, 5, patience()).size, -EBUSY) << "one reservation at a time";
  EXPECT_EQ(other_net_.send(this_thread(), near_, "second", 6, kDontWait), 6);
  EXPECT_EQ(net_.recv(this_thread(), far_, bytes, sizeof bytes, kDontWait), -EAGAIN) << "it arrives behind the first";
  std::memcpy(first.data, "first", 5);
  EXPECT_EQ(other_net_.commit(this_thread(), near_, 5), 0);
  EXPECT_EQ(net_.recv(this_thread(), far_, bytes, sizeof bytes, 0, patience()), 5);
  EXPECT_EQ(std::string(bytes, 5), "first");
  EXPECT_EQ(net_.recv(this_thread(), far_, bytes, sizeof bytes, 0, patience()), 6);
  ASSERT_EQ(other_net_.reserve(this_thread(), near_, 1000, patience()).size, 1000);
  EXPECT_EQ(other_net_.send(this_thread(), near_, "third", 5, 0, patience()), 5);
  EXPECT_EQ(other_net_.abort(this_thread(), near_), 0);
  EXPECT_EQ(other_net_.abort(this_thread(), near_), -EINVAL);
  EXPECT_EQ(net_.recv(this_thread(), far_, bytes, sizeof bytes, 0, patience()), 5) << "what was aborted is not there";
  EXPECT_EQ(std::string(bytes, 5), "third");
}

// The most that such a record takes: its header, and before it a ring's end into which it does not fit by those 8
// bytes.
TEST_P(RecordPair, WhatPollCallsWritableTakesARecordOfAnEighthOfTheRing) {
  connect();
  std::int64_t ring_bytes = 0;
  ASSERT_EQ(other_net_.getsockopt(this_thread(), near_, SocketOption::send_buffer, ring_bytes), 0);
  std::vector<char> eighth(static_cast<std::size_t>(ring_bytes) / 8);
  const std::size_t with_header = eighth.size() - 8;
  const auto send = [&](std::size_t bytes) {
    return other_net_.send(this_thread(), near_, eighth.data(), bytes, kDontWait);
  };
  const auto writable = [&](Deadline deadline) {
    PollEntry entry{near_, kPollOut, 0};
    return other_net_.poll(this_thread(), &entry, 1, deadline) == 1;
  };
  for (int i = 0; i < 7; ++i) ASSERT_EQ(send(with_header), std::int64_t(with_header)) << i;
  int received = 0;
  // When all have arrived, the sending side's proxy may still have to give the ring's space back.
  while (!writable(received == 7 ? patience() : Deadline::now())) {
    ASSERT_EQ(net_.recv(this_thread(), far_, eighth.data(), eighth.size(), 0, patience()), std::int64_t(with_header))
        << received;
    ++received;
  }
  EXPECT_EQ(send(eighth.size()), std::int64_t(eighth.size()))
      << "writable when " << received << " of 7 eighths were received";
}

TEST_P(RecordPair, WhatIsGivenUpStandsInNobodysWay) {
  connect();
  char bytes[kRing] = {};
  ASSERT_EQ(other_net_.send(this_thread(), near_, bytes, 100, 0, patience()), 100);
  ASSERT_EQ(net_.recv(this_thread(), far_, bytes, sizeof bytes, 0, patience()), 100);
  ASSERT_EQ(other_net_.reserve(this_thread(), near_, 4000, patience()).size, 4000);
  ASSERT_EQ(other_net_.abort(this_thread(), near_), 0);
  // Behind 4000 bytes it would begin at the ring's origin, where there would be no room before they are received.
  EXPECT_EQ(other_net_.send(this_thread(), near_, bytes, kLongest, kDontWait), static_cast<std::int64_t>(kLongest));
  PollEntry entry{far_, kPollIn, 0};
  EXPECT_EQ(net_.poll(this_thread(), &entry, 1, patience()), 1);
  EXPECT_EQ(net_.recv(this_thread(), far_, bytes, sizeof bytes, kDontWait), static_cast<std::int64_t>(kLongest));
}

TEST_P(RecordPair, TheEndComesBehindEveryRecordThatWasSent) {
  for (const bool aborts : {true, false}) {
    connect();
    char bytes[64] = {};
    ASSERT_EQ(other_net_.send(this_thread(), near_, "first", 5, 0, patience()), 5);
    ASSERT_EQ(other_net_.reserve(this_thread(), near_, 16, patience()).size, 16);
    ASSERT_EQ(other_net_.send(this_thread(), near_, "second", 6, 0, patience()), 6);
    EXPECT_EQ(other_net_.shutdown(this_thread(), near_, Shutdown::write), 0);
    EXPECT_EQ(other_net_.send(this_thread(), near_, "late", 4, 0, patience()), -EPIPE);
    EXPECT_EQ(net_.recv(this_thread(), far_, bytes, sizeof bytes, 0, patience()), 5);
    const Deadline soon = Deadline::after_ns(20'000'000);  // time enough for an end that is told too early
    EXPECT_EQ(net_.recv(this_thread(), far_, bytes, sizeof bytes, 0, soon), -ETIMEDOUT)
        << "the end is behind the second";
    if (aborts) {
      EXPECT_EQ(other_net_.abort(this_thread(), near_), 0);
    } else {
      EXPECT_EQ(other_net_.commit(this_thread(), near_, 16), -EPIPE);
    }
    EXPECT_EQ(net_.recv(this_thread(), far_, bytes, sizeof bytes, 0, patience()), 6);
    EXPECT_EQ(std::string(bytes, 6), "second");
    EXPECT_EQ(net_.recv(this_thread(), far_, bytes, sizeof bytes, 0, patience()), 0);
    other_net_.close(this_thread(), near_);
    net_.close(this_thread(), far_);
  }
}

TEST_P(RecordPair, EndingUnderSeveralSendersLosesNothingThatWasSent) {
  for (int round = 0; round < 8; ++round) {
    connect();
    std::atomic<int> sent = 0;
    std::vector<std::thread> senders;
    for (int i = 0; i < 3; ++i) {
      senders.emplace_back([this, i, &sent] {
        const std::vector<char> record(static_cast<std::size_t>(8 + 1500 * i));
        std::int64_t result = 0;
        for (;; ++sent) {
          result = other_net_.send(this_thread(), near_, record.data(), record.size(), 0, patience());
          if (result <= 0) break;
        }
        EXPECT_EQ(result, -EPIPE);
      });
    }
    char bytes[kRing];
    std::int64_t length = 0;
    int received = 0;
    for (; (length = net_.recv(this_thread(), far_, bytes, sizeof bytes, 0, patience())) > 0; ++received) {
      if (received == round) {
        EXPECT_EQ(other_net_.shutdown(this_thread(), near_, Shutdown::write), 0);
      }
    }
    for (std::thread& sender : senders) sender.join();
    EXPECT_EQ(length, 0) << "the end, round " << round;
    EXPECT_EQ(received, sent) << "round " << round;
    other_net_.close(this_thread(), near_);
    net_.close(this_thread(), far_);
  }
}

TEST_P(RecordPair, MoreRecordsInTheMakingThanThereIsRoomForWaitTheirTurn) {
  connect();
  ASSERT_EQ(other_net_.reserve(this_thread(), near_, 8, patience()).size, 8);
  int sent = 0;
  while (other_net_.send(this_thread(), near_, "x", 1, kDontWait) == 1) ++sent;
  EXPECT_GE(sent, 8) << "several can be in the making";
  EXPECT_LE(sent, 100);
  EXPECT_EQ(other_net_.send(this_thread(), near_, "x", 1, 0, Deadline::after_ns(1'000'000)), -ETIMEDOUT)
      << "never a hang";
  EXPECT_EQ(other_net_.commit(this_thread(), near_, 8), 0);
  char byte = 0;
  for (int i = 0; i <= sent; ++i) ASSERT_EQ(net_.recv(this_thread(), far_, &byte, 1, 0, patience()), i == 0 ? 8 : 1);
  EXPECT_EQ(other_net_.send(this_thread(), near_, "x", 1, kDontWait), 1);
}

TEST_P(RecordPair, ClosingUnderSeveralSendersEndsBetweenTwoRecords) {
  for (int round = 0; round < 40; ++round) {
    connect();
    std::vector<std::thread> senders;
    for (int i = 0; i < 3; ++i) {
      senders.emplace_back([this, i] {
        const std::vector<char> record(static_cast<std::size_t>(100 + 300 * i), static_cast<char>('a' + i));
        while (other_net_.send(this_thread(), near_, record.data(), record.size(), 0, patience()) > 0) {
        }
      });
    }
    char bytes[kRing];
    std::int64_t wrong = 0, length = 0;
    for (int count = 0; (length = net_.recv(this_thread(), far_, bytes, sizeof bytes, 0, patience())) > 0; ++count) {
      wrong += length != 100 + 300 * (bytes[0] - 'a') || bytes[length - 1] != bytes[0];
      if (count == round) {
        EXPECT_EQ(other_net_.close(this_thread(), near_), 0);
      }
    }
    for (std::thread& sender : senders) sender.join();
    EXPECT_EQ(length, 0) << "the end, round " << round;
    EXPECT_EQ(wrong, 0);
    net_.close(this_thread(), far_);
  }
}

TEST_P(RecordPair, BothSidesHaveRingsOfOneSize) {
  Endpoint at = where_;
  at.port = 0;
  at.ring_bytes = 4 << 10;
  const Socket small = net_.listen(this_thread(), at, 4, patience());
  Endpoint to;
  ASSERT_EQ(net_.getsockname(small, to), 0);
  to.ring_bytes = 64 << 10;
  const Socket near = other_net_.connect(this_thread(), to, patience());
  const Socket far = net_.accept(this_thread(), small, patience());
  std::int64_t here = 0, there = 0;
  EXPECT_EQ(other_net_.getsockopt(this_thread(), near, SocketOption::send_buffer, here), 0);
  EXPECT_EQ(net_.getsockopt(this_thread(), far, SocketOption::receive_buffer, there), 0);
  EXPECT_EQ(here, 4 << 10);
  EXPECT_EQ(there, 4 << 10);
  SocketStats stats;
  EXPECT_EQ(net_.stats(far, stats), 0);
  EXPECT_EQ(stats.type, SocketType::seqpacket);
  if (GetParam()) {
    EXPECT_EQ(to_string(stats.link), name_of(LinkKind::p2p));
  } else {
    EXPECT_NE(stats.link, LinkKind::p2p) << "the best of the others that this machine has";
  }
}

TEST_P(RecordPair, StreamsAndRecordsDoNotMix) {
  Endpoint stream = where_;
  stream.type = SocketType::stream;
  EXPECT_EQ(other_net_.connect(this_thread(), stream, patience()), -EPROTOTYPE);
  stream.port = 0;
  const Socket listener = net_.listen(this_thread(), stream, 4, patience());
  Endpoint where;
  ASSERT_EQ(net_.getsockname(listener, where), 0);
  where.type = SocketType::seqpacket;
  EXPECT_EQ(other_net_.connect(this_thread(), where, patience()), -EPROTOTYPE);
}

TEST(RecordsOverTcp, AreChosenByTheEnvironmentOrTheEndpoint) {
  setenv("GPUSOCK_LINK", "tcp", 1);
  const Endpoint at = Endpoint::parse("127.0.0.1:0,type=seqpacket");
  unsetenv("GPUSOCK_LINK");
  EXPECT_EQ(at, Endpoint::parse("127.0.0.1:0,type=seqpacket,link=tcp"));
  EXPECT_FALSE(at.is_plain_tcp());
  Context context(record_options(true));  // which would share memory
  const Net net = context.net();
  const Socket listener = net.listen(this_thread(), at, 4, patience());
  Endpoint to;
  ASSERT_EQ(net.getsockname(listener, to), 0);
  EXPECT_EQ(to, at.with_port(to.port));
  const Socket near = net.connect(this_thread(), to, patience());
  const Socket far = net.accept(this_thread(), listener, patience());
  ASSERT_GE(near, 0);
  ASSERT_GE(far, 0);
  SocketStats stats;
  EXPECT_EQ(net.stats(near, stats), 0);
  EXPECT_EQ(stats.link, LinkKind::tcp);
  for (const std::string text : {"one", "and another"}) {
    EXPECT_EQ(net.send(this_thread(), near, text.data(), text.size(), 0, patience()), std::int64_t(text.size()));
  }
  char bytes[32];
  EXPECT_EQ(net.recv(this_thread(), far, bytes, sizeof bytes, 0, patience()), 3);
  EXPECT_EQ(net.recv(this_thread(), far, bytes, sizeof bytes, 0, patience()), 11);
  EXPECT_EQ(net.connect(this_thread(), to.with_type(SocketType::stream).with_link(LinkKind::automatic), patience()),
            -EPROTOTYPE);
}

TEST_P(RecordPair, AHandleWithoutItsTypeIsNoHandle) {
  connect();
  const Socket bare = near_ & ~table::kRecordBit;
  ASSERT_NE(bare, near_);
  char byte = 0;
  EXPECT_EQ(other_net_.send(this_thread(), bare, "x", 1, kDontWait), -EBADF);
  EXPECT_EQ(other_net_.recv(this_thread(), bare, &byte, 1, kDontWait), -EBADF);
}

INSTANTIATE_TEST_SUITE_P(Links, RecordPair, testing::Values(true, false),
                         [](const auto& kind) { return kind.param ? "p2p" : "tcp"; });

}  // namespace
}  // namespace gpusock::conformance::records
