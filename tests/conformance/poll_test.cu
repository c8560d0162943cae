// What poll promises: which events, when, and that it always comes back.
#include "tests/conformance/party.cuh"

#if defined(GPUSOCK_DEVICE_CPU)
#include <sys/resource.h>
#endif

namespace gpusock::conformance::polling {
namespace {

constexpr int kMany = 1100;
constexpr int kBytes = 16'384;

Options poll_options() {
  Options options;
  options.ring_bytes = 4 << 10;
  options.sockets_max = 64;
  options.connections_max = 8;
  return options;
}

template <class Kind>
class Poll : public PartiesOnLink<Kind> {
 protected:
  Poll() : PartiesOnLink<Kind>(poll_options()) {}

  Mapped<PollEntry> entries_{this->party_.context, kMany};
};

using Cases = testing::Types<OnLink<ThreadScope, LinkKind::tcp>, OnLink<WarpScope, LinkKind::p2p>,
#if !defined(__CUDACC__)
                             OnLink<BlockScope, LinkKind::p2p>, OnLink<HostScope, LinkKind::p2p>,
#endif
                             OnLink<BlockScope, LinkKind::tcp>, OnLink<HostScope, LinkKind::tcp>>;
TYPED_TEST_SUITE(Poll, Cases, OnLinkName);

/// One call on one socket: result << 8 | revents.
template <class Group>
GPUSOCK_FN std::int64_t poll_one(const Group& group, const Net& net, PollEntry* entry, Socket socket, int events,
                                 Deadline deadline) {
  if (group.thread_rank() == 0) *entry = {socket, static_cast<std::int16_t>(events), 0x55};
  group.sync();
  const std::int64_t result = net.poll(group, entry, 1, deadline);
  const std::int64_t all = result * 256 + entry->revents;
  group.sync();
  return all;
}
GPUSOCK_FN constexpr std::int64_t one(int events) { return 256 + events; }

struct PollArguments {
  Report* report;
  PollEntry* entries;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net) {
    note(group, report, 0, net.poll(group, entries, -1, Deadline::now()));
    note(group, report, 1, net.poll(group, nullptr, 1, Deadline::now()));
    note(group, report, 2, net.poll(group, nullptr, 0, Deadline::now()));
    note(group, report, 3, poll_one(group, net, entries, 12345678, kPollIn, Deadline::never()));
    note(group, report, 4, poll_one(group, net, entries, -1, kPollIn | kPollOut, Deadline::now()));
    const std::uint64_t start_ns = clock_ns();
    note(group, report, 5, poll_one(group, net, entries, -7, kPollIn, Deadline::after_ns(5'000'000)));
    note(group, report, 6, clock_ns() - start_ns >= 5'000'000);
  }
};

TYPED_TEST(Poll, TakesNoNonsenseAndTellsBadHandlesApart) {
  this->party_.start(PollArguments{&this->party_.report(), this->entries_.data()});
  this->party_.join();
  EXPECT_EQ(this->party_.result(0), -EINVAL) << "a negative count";
  EXPECT_EQ(this->party_.result(1), -EINVAL) << "no entries";
  EXPECT_EQ(this->party_.result(2), 0) << "nothing to look at, and no time";
  EXPECT_EQ(this->party_.result(3), one(kPollNval)) << "never opened";
  EXPECT_EQ(this->party_.result(4), 0) << "negative sockets are skipped, their revents zero";
  EXPECT_EQ(this->party_.result(5), 0);
  EXPECT_EQ(this->party_.result(6), 1) << "not before the deadline";
}

/// A server that learns everything from poll.
struct PollThroughALife {
  Report* report;
  PollEntry* entry;
  Endpoint at;
  Flag* step;  // the other party's turn

  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net) {
    const Socket listener = net.listen(group, at, 4, patience());
    note(group, report, 0, poll_one(group, net, entry, listener, kPollIn | kPollOut, Deadline::now()));
    if (group.thread_rank() == 0) {
      net.getsockname(listener, report->where);
      report->listening.raise();
    }
    note(group, report, 1, poll_one(group, net, entry, listener, kPollIn, patience()));
    const Socket socket = net.accept(group, listener, Deadline::now());
    note(group, report, 2, poll_one(group, net, entry, socket, kPollIn | kPollOut, Deadline::now()));
    if (group.thread_rank() == 0) step->raise(1);
    note(group, report, 3, poll_one(group, net, entry, socket, kPollIn, patience()));
    char byte = 0;
    note(group, report, 4, net.recv(group, socket, &byte, 1, kDontWait));
    if (group.thread_rank() == 0) step->raise(2);
    note(group, report, 5, poll_one(group, net, entry, socket, kPollIn, patience()));
    net.shutdown(group, socket, Shutdown::write);
    note(group, report, 6, poll_one(group, net, entry, socket, 0, Deadline::now()));
    net.close(group, socket);
    note(group, report, 7, poll_one(group, net, entry, socket, kPollIn, Deadline::now()));
    net.close(group, listener);
  }
};

struct WriteThenEnd {
  Flag* step;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    char byte = 'x';
    step->wait(group, 1);
    note(group, report, 0, net.send(group, socket, &byte, 1, 0, patience()));
    step->wait(group, 2);
    net.shutdown(group, socket, Shutdown::write);
    note(group, report, 1, net.recv(group, socket, &byte, 1, 0, patience()));
  }
};

TYPED_TEST(Poll, FollowsASocketThroughItsLife) {
  Mapped<Flag> step(this->party_.context, 1);
  this->party_.start(
      PollThroughALife{&this->party_.report(), this->entries_.data(), loopback(TypeParam::kLink), step.data()});
  ASSERT_TRUE(this->party_.report().listening.wait());
  this->other_.start(Visit<WriteThenEnd>{this->party_.report().where, &this->other_.report(), {step.data()}});
  this->other_.join();
  this->party_.join();
  EXPECT_EQ(this->party_.result(0), 0) << "a listener that nobody called";
  EXPECT_EQ(this->party_.result(1), one(kPollIn)) << "a connection waits";
  EXPECT_EQ(this->party_.result(2), one(kPollOut)) << "connected: room, and nothing to read";
  EXPECT_EQ(this->party_.result(3), one(kPollIn)) << "a byte";
  EXPECT_EQ(this->party_.result(4), 1) << "poll said that recv has something";
  EXPECT_EQ(this->party_.result(5), one(kPollIn)) << "the end of the stream, or just the end";
  EXPECT_EQ(this->party_.result(6), one(kPollHup)) << "both directions ended; nobody asked, it is told all the same";
  EXPECT_EQ(this->party_.result(7), one(kPollNval)) << "closed";
  EXPECT_EQ(this->other_.result(1), 0);
}

/// Sends until nothing more goes in, and waits for room. On tcp the operating system's buffers fill as well, at their
/// own pace, so room may appear between two calls. What poll says is checked each time: no room, or room that send
/// finds.
struct PollForRoom {
  PollEntry* entry;
  std::uint8_t* bytes;
  Flag* full;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    std::int64_t sent = 0, result = 0, polled = 0;
    do {
      do {
        // The wait lets the proxy empty the ring, so that poll mostly finds room only when the reader has made it.
        result = net.send(group, socket, bytes, kBytes, 0, Deadline::after_ns(20'000'000));
        if (result > 0) sent += result;
      } while (result > 0);
      polled = poll_one(group, net, entry, socket, kPollOut, Deadline::now());
      if (polled == 0) break;
      result = net.send(group, socket, bytes, 1, kDontWait);
      if (result > 0) sent += result;
    } while (polled == one(kPollOut) && result == 1);
    note(group, report, 0, polled);
    if (group.thread_rank() == 0) full->raise();
    note(group, report, 1, poll_one(group, net, entry, socket, kPollOut, patience()));
    note(group, report, 2, net.send(group, socket, bytes, 1, kDontWait));
    note(group, report, 3, sent);
  }
};

struct ReadAllWhenFull {
  std::uint8_t* bytes;
  Flag* full;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    std::int64_t received = 0;
    full->wait(group);
    for (;;) {
      const auto result = net.recv(group, socket, bytes, kBytes, 0, patience());
      if (result <= 0) break;
      received += result;
    }
    note(group, report, 0, received);
  }
};

TYPED_TEST(Poll, SaysWhenThereIsRoomAgain) {
  Mapped<Flag> full(this->party_.context, 1);
  Mapped<std::uint8_t> bytes(this->party_.context, kBytes), other_bytes(this->other_.context, kBytes);
  converse(this->party_, this->other_, TypeParam::kLink, PollForRoom{this->entries_.data(), bytes.data(), full.data()},
           ReadAllWhenFull{other_bytes.data(), full.data()});
  EXPECT_EQ(this->party_.result(0), 0) << "no room; or room, and then send found none";
  EXPECT_EQ(this->party_.result(1), one(kPollOut));
  EXPECT_EQ(this->party_.result(2), 1) << "poll said that there is room";
  EXPECT_EQ(this->other_.result(0), this->party_.result(3) + 1);
}

/// Polls all entries, for ever, until one has something.
struct PollMany {
  Report* report;
  PollEntry* entries;
  int count;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net) {
    if (group.thread_rank() == 0) report->reached[0].raise();
    note(group, report, 0, net.poll(group, entries, count));
  }
};

/// Accepts one connection and leaves it open for the next body.
struct OpenOne {
  Report* report;
  Endpoint at;
  Socket* opened;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net) {
    const Socket listener = net.listen(group, at, 4, patience());
    if (group.thread_rank() == 0) {
      net.getsockname(listener, report->where);
      report->listening.raise();
    }
    const Socket socket = net.accept(group, listener, patience());
    if (group.thread_rank() == 0) *opened = socket;
  }
};

struct TakeOne {
  Socket socket;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net) {
    char byte = 0;
    net.recv(group, socket, &byte, 1, 0, patience());
  }
};

TYPED_TEST(Poll, AnyOneOfAThousandEntriesWakesIt) {
  const Net peer = this->other_.context.net();
  Mapped<Socket> opened(this->party_.context, 1);
  Report& report = this->party_.report();
  this->party_.start(OpenOne{&report, loopback(TypeParam::kLink), opened.data()});
  ASSERT_TRUE(report.listening.wait());
  const Socket far = peer.connect(this_thread(), report.where, patience());
  ASSERT_GE(far, 0);
  this->party_.join();
  ASSERT_GE(opened[0], 0);
  for (const int index : {0, kMany / 2, kMany - 1}) {
    for (PollEntry& entry : this->entries_) entry = {-1, kPollIn, 0x55};
    this->entries_[index].socket = opened[0];
    report.reached[0].value = 0;
    this->party_.start(PollMany{&report, this->entries_.data(), kMany});
    ASSERT_TRUE(report.reached[0].wait());
    const char byte = 'x';
    ASSERT_EQ(peer.send(this_thread(), far, &byte, 1, kWaitAll, patience()), 1);
    this->party_.join();
    EXPECT_EQ(this->party_.result(0), 1);
    for (int i = 0; i < kMany; ++i) ASSERT_EQ(this->entries_[i].revents, i == index ? kPollIn : 0) << "entry " << i;
    this->party_.start(TakeOne{opened[0]});
    this->party_.join();
  }
}

#if defined(GPUSOCK_DEVICE_CPU)
/// How often the calling OS thread has gone to sleep.
inline long sleeps_of_thread() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

/// Polls while nothing happens, longer each time, until one of the calls has given up the processor. A slow machine may
/// need all of a short call to get to the wait.
struct PollAndSleep {
  Report* report;
  template <class Group>
  void operator()(const Group& group, const Net& net) {
    constexpr std::uint64_t kLongestNs = 10'000'000'000;
    const long before = sleeps_of_thread();
    for (std::uint64_t duration_ns = 25 * cpu_device::kSpinNs; duration_ns < kLongestNs; duration_ns *= 2) {
      net.poll(group, nullptr, 0, Deadline::after_ns(duration_ns));
      const bool slept = sleeps_of_thread() != before;  // one OS thread runs the whole group
      note(group, report, 0, slept);
      if (detail::broadcast(group, std::int64_t{slept}) != 0) return;
      group.sync();
    }
  }
};

TYPED_TEST(Poll, GivesUpTheProcessorWhileNothingHappens) {
  this->party_.start(PollAndSleep{&this->party_.report()});
  this->party_.join();
  EXPECT_EQ(this->party_.result(0), 1) << "a group that waits costs as much as one thread that waits";
}
#endif

TYPED_TEST(Poll, EndingTheContextEndsIt) {
  this->party_.start(PollMany{&this->party_.report(), this->entries_.data(), 0});
  ASSERT_TRUE(this->party_.report().reached[0].wait());
  this->party_.context.cancel();
  this->party_.join();
  EXPECT_EQ(this->party_.result(0), -ECANCELED);
}

TYPED_TEST(Poll, AContextThatEndsWinsOverEvents) {
  for (PollEntry& entry : this->entries_) entry = {12345678, kPollIn, 0};
  this->party_.context.cancel();
  this->party_.start(PollMany{&this->party_.report(), this->entries_.data(), kMany});
  this->party_.join();
  EXPECT_EQ(this->party_.result(0), -ECANCELED);
}

/// Entries in shared memory, and in the calling thread's own.
__global__ void poll_in_shared_memory(Net net, int count, std::int64_t* result) {
  const auto block = this_block();
  __shared__ PollEntry entries[64];
  for (int i = static_cast<int>(threadIdx.x); i < 64; i += static_cast<int>(blockDim.x)) {
    entries[i] = {i % 2 == 0 ? 12345678 : -1, kPollIn, 0};
  }
  const int found = net.poll(block, entries, count, Deadline::never());
  if (threadIdx.x != 0) return;
  result[0] = found;
  result[1] = 0;
  for (int i = 0; i < count; ++i) result[1] += entries[i].revents == (i % 2 == 0 ? kPollNval : 0);
}

TEST(PollMemory, EntriesMayBeInSharedMemory) {
  Context context(poll_options());
  Mapped<std::int64_t> result(context, 2);
  launch(context, {.grid = 1, .block = 96}, poll_in_shared_memory, context.net(), 64, result.data());
  context.synchronize();
  EXPECT_EQ(result[0], 32);
  EXPECT_EQ(result[1], 64);
}

}  // namespace
}  // namespace gpusock::conformance::polling
