// What poll sets promise: which sockets, when, once or as long as they are ready, and at what cost.
#include "tests/conformance/party.cuh"

#include <array>
#include <set>
#include <vector>

namespace gpusock::conformance::poll_sets {
namespace {

constexpr int kEventsMax = 4;

Options set_options(std::uint32_t sockets_max = 64) {
  Options options;
  options.ring_bytes = 4 << 10;
  options.sockets_max = sockets_max;
  options.connections_max = 64;  // both ends of each
  return options;
}

template <class Kind>
class PollSets : public PartiesOnLink<Kind> {
 protected:
  PollSets() : PartiesOnLink<Kind>(set_options()) {}

  Mapped<PollEvent> events_{this->party_.context, kEventsMax};
  Mapped<Flag> step_{this->party_.context, 1};
};

using Cases = testing::Types<OnLink<ThreadScope, LinkKind::tcp>, OnLink<WarpScope, LinkKind::p2p>,
#if !defined(__CUDACC__)
                             OnLink<BlockScope, LinkKind::p2p>, OnLink<HostScope, LinkKind::p2p>,
#endif
                             OnLink<BlockScope, LinkKind::tcp>, OnLink<HostScope, LinkKind::tcp>>;
TYPED_TEST_SUITE(PollSets, Cases, OnLinkName);

/// What a wait returned, in one number: the count, the first event's tag, its events.
GPUSOCK_FN constexpr std::int64_t told(std::int64_t count, std::uint64_t tag, int events) {
  return count << 32 | static_cast<std::int64_t>(tag) << 16 | events;
}
GPUSOCK_FN constexpr std::int64_t one(std::uint64_t tag, int events) { return told(1, tag, events); }

template <class Group>
GPUSOCK_FN std::int64_t wait_once(const Group& group, const Net& net, PollSet set, PollEvent* events,
                                  Deadline deadline) {
  const std::int64_t count = net.wait(group, set, events, kEventsMax, deadline);
  const std::int64_t result = count > 0 ? told(count, events[0].tag, events[0].events) : count;
  group.sync();
  return result;
}

/// A server that learns everything from a set.
struct ServeBySet {
  Report* report;
  PollEvent* events;
  Endpoint at;
  Flag* step;  // the other party's turn
  std::int64_t* result;

  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net) {
    int at_result = 0;
    const auto note_next = [&](std::int64_t value) {
      if (group.thread_rank() == 0) result[at_result] = value;
      ++at_result;
    };
    const auto next = [&](PollSet set, Deadline deadline) { note_next(wait_once(group, net, set, events, deadline)); };
    char byte = 0;
    const PollSet set = net.open_set(group);
    const Socket listener = net.listen(group, at, 4, patience());
    note_next(net.watch(group, set, listener, kPollIn, 1));
    next(set, Deadline::now());
    if (group.thread_rank() == 0) {
      net.getsockname(listener, report->where);
      report->listening.raise();
    }
    next(set, patience());
    const Socket socket = net.accept(group, listener, Deadline::now());
    next(set, Deadline::now());  // the listener has no connection any more
    note_next(net.watch(group, set, socket, kPollIn | kPollOut, 2));
    next(set, patience());
    note_next(net.watch(group, set, socket, kPollIn, 3));  // changed: nothing to read yet
    next(set, Deadline::now());
    if (group.thread_rank() == 0) step->raise(1);
    next(set, patience());
    next(set, Deadline::now());  // as long as it is ready
    note_next(net.recv(group, socket, &byte, 1, kDontWait));
    next(set, Deadline::now());
    note_next(net.watch(group, set, socket, kPollIn | kPollEdge, 4));
    if (group.thread_rank() == 0) step->raise(2);
    next(set, patience());
    next(set, Deadline::now());  // once
    next(set, Deadline::after_ns(2'000'000));
    if (group.thread_rank() == 0) step->raise(3);
    next(set, patience());  // another byte
    note_next(net.watch(group, set, socket, kPollIn | kPollEdge, 5));
    next(set, patience());  // watched anew
    for (int i = 0; i < 2; ++i) note_next(net.recv(group, socket, &byte, 1, kDontWait));
    if (group.thread_rank() == 0) step->raise(4);
    next(set, patience());  // the end
    note_next(net.close(group, socket));
    next(set, Deadline::now());  // a closed socket is in no set
    note_next(net.unwatch(group, set, listener));
    note_next(net.unwatch(group, set, listener));
    note_next(net.close_set(group, set));
    note_next(net.wait(group, set, events, kEventsMax, Deadline::now()));
    net.close(group, listener);
  }
};

struct WriteInSteps {
  Flag* step;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    char byte = 'x';
    for (int at = 1; at <= 3; ++at) {
      step->wait(group, at);
      note(group, report, 0, net.send(group, socket, &byte, 1, 0, patience()));
    }
    step->wait(group, 4);
    net.shutdown(group, socket, Shutdown::write);
    note(group, report, 1, net.recv(group, socket, &byte, 1, 0, patience()));
  }
};

TYPED_TEST(PollSets, FollowASocketThroughItsLife) {
  struct Expected {
    std::int64_t value;
    const char* why;
  };
  const Expected expected[] = {
      {0, "the listener is watched"},
      {0, "and has no connection"},
      {one(1, kPollIn), "a connection waits"},
      {0, "it was accepted"},
      {0, "the socket is watched"},
      {one(2, kPollOut), "room, and nothing to read"},
      {0, "watched for input alone"},
      {0, "none"},
      {one(3, kPollIn), "a byte"},
      {one(3, kPollIn), "level-triggered: as long as it is there"},
      {1, "the byte"},
      {0, "it was read"},
      {0, "edge-triggered from now on"},
      {one(4, kPollIn), "a byte"},
      {0, "once"},
      {0, "also later"},
      {one(4, kPollIn), "another byte, though the first was not read"},
      {0, "watched anew"},
      {one(5, kPollIn), "and so returned anew"},
      {1, "a byte"},
      {1, "the other"},
      {one(5, kPollIn), "the end"},
      {0, "closed"},
      {0, "nobody is told of it"},
      {0, "the set leaves the listener"},
      {-ENOENT, "once"},
      {0, "closed"},
      {-EBADF, "closed"},
  };
  Mapped<std::int64_t> result(this->party_.context, std::size(expected));
  this->party_.start(ServeBySet{&this->party_.report(), this->events_.data(), loopback(TypeParam::kLink),
                                this->step_.data(), result.data()});
  ASSERT_TRUE(this->party_.report().listening.wait());
  this->other_.start(Visit<WriteInSteps>{this->party_.report().where, &this->other_.report(), {this->step_.data()}});
  this->party_.join();
  this->other_.join();
  for (std::size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(result[i], expected[i].value) << expected[i].why;
}

/// Fills the ring while nobody reads, and waits for room.
struct WaitForRoom {
  PollEvent* events;
  std::uint8_t* bytes;
  Flag* full;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    const PollSet set = net.open_set(group);
    note(group, report, 0, net.watch(group, set, socket, kPollOut | kPollEdge, 7));
    note(group, report, 1, wait_once(group, net, set, events, patience()));
    std::int64_t sent = 0;
    do {
      sent = net.send(group, socket, bytes, 4096, kDontWait);
    } while (sent > 0);
    note(group, report, 2, sent);
    if (group.thread_rank() == 0) full->raise();
    note(group, report, 3, wait_once(group, net, set, events, patience()));
    net.shutdown(group, socket, Shutdown::write);
    net.close_set(group, set);
  }
};

struct ReadToTheEnd {
  std::uint8_t* bytes;
  Flag* full;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    full->wait(group);
    std::int64_t result = 0;
    while ((result = net.recv(group, socket, bytes, 4096, 0, patience())) > 0) {
    }
    note(group, report, 0, result);
  }
};

TYPED_TEST(PollSets, SayWhenThereIsRoomAgain) {
  Mapped<std::uint8_t> bytes(this->party_.context, 4096), other_bytes(this->other_.context, 4096);
  converse(this->party_, this->other_, TypeParam::kLink,
           WaitForRoom{this->events_.data(), bytes.data(), this->step_.data()},
           ReadToTheEnd{other_bytes.data(), this->step_.data()});
  EXPECT_EQ(this->party_.result(0), 0);
  EXPECT_EQ(this->party_.result(1), one(7, kPollOut)) << "there is room from the beginning";
  EXPECT_EQ(this->party_.result(2), -EAGAIN);
  EXPECT_EQ(this->party_.result(3), one(7, kPollOut)) << "room came back";
  EXPECT_EQ(this->other_.result(0), 0);
}

/// Waits on an empty set.
struct WaitOnly {
  Report* report;
  PollEvent* events;
  PollSet* opened;
  std::uint64_t duration_ns;  ///< kForever: for ever
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net) {
    const PollSet set = net.open_set(group);
    if (group.thread_rank() == 0) {
      *opened = set;
      report->reached[0].raise();
    }
    const std::uint64_t start_ns = clock_ns();
    const Deadline deadline = Deadline::after_ns(duration_ns);
    note(group, report, 0, wait_once(group, net, set, events, deadline));
    note(group, report, 1, static_cast<std::int64_t>(clock_ns() - start_ns));
    note(group, report, 2, wait_once(group, net, set, events, Deadline::now()));
  }
};

TYPED_TEST(PollSets, ADeadlineEndsTheWait) {
  Mapped<PollSet> set(this->party_.context, 1);
  this->party_.start(WaitOnly{&this->party_.report(), this->events_.data(), set.data(), 5'000'000});
  this->party_.join();
  EXPECT_EQ(this->party_.result(0), 0);
  EXPECT_GE(this->party_.result(1), 5'000'000);
}

TYPED_TEST(PollSets, TheHostWakesAGroupThatWaits) {
  Mapped<PollSet> set(this->party_.context, 1);
  this->party_.start(WaitOnly{&this->party_.report(), this->events_.data(), set.data(), kPatienceNs});
  ASSERT_TRUE(this->party_.report().reached[0].wait());
  const conformance::Net net = this->party_.context.net();
  EXPECT_EQ(net.wake(this_thread(), set[0]), 0);
  this->party_.join();
  EXPECT_EQ(this->party_.result(0), one(1, kPollWake));
  EXPECT_EQ(this->party_.result(2), 0) << "told once";
}

TYPED_TEST(PollSets, EndingTheContextEndsTheWait) {
  Mapped<PollSet> set(this->party_.context, 1);
  this->party_.start(WaitOnly{&this->party_.report(), this->events_.data(), set.data(), kForever});
  ASSERT_TRUE(this->party_.report().reached[0].wait());
  this->party_.context.cancel();
  this->party_.join();
  EXPECT_EQ(this->party_.result(0), -ECANCELED);
}

/// Blocks that wait on sets of their own for work from another block, which also wakes the host's set.
struct Work {
  static constexpr int kItems = 100;
  std::uint64_t items[kItems];
  Flag published;
  PollSet set;
  Flag opened;
  std::uint64_t sum;
  std::uint64_t wakes;
};

__global__ void share_work(Net net, Work* work, PollSet hosts_set) {
  const auto block = this_block();
  __shared__ PollEvent events[2];
  if (blockIdx.x == 0) {
    const PollSet set = net.open_set(block);
    if (threadIdx.x == 0) {
      work->set = set;
      work->opened.raise();
    }
    int taken = 0;
    std::uint64_t wakes = 0, sum = 0;
    while (taken < Work::kItems) {
      const int count = net.wait(block, set, events, 2, patience());
      if (count != 1 || events[0].events != kPollWake) break;
      wakes += events[0].tag;
      for (; taken < static_cast<int>(wakes); ++taken) sum += work->items[taken];  // what each wake announced
      block.sync();
    }
    if (threadIdx.x == 0) {
      work->sum = sum;
      work->wakes = wakes;
    }
    net.wake(block, hosts_set);
  } else {
    work->opened.wait(block);
    const PollSet set = work->set;
    for (int i = 0; i < Work::kItems; ++i) {
      if (threadIdx.x == 0) work->items[i] = i + 1;
      block.sync();
      net.wake(block, set);
    }
  }
}

TEST(PollSetWakes, ABlockHandsWorkToAnotherOneAndTheHostHearsOfTheEnd) {
  Context context(set_options());
  const conformance::Net net = context.net();
  Mapped<Work> work(context, 1);
  const PollSet set = net.open_set(this_thread());
  launch(context, {.grid = 2, .block = 32}, share_work, context.net(), work.data(), set);
  PollEvent event;
  EXPECT_EQ(net.wait(this_thread(), set, &event, 1, patience()), 1);
  EXPECT_EQ(event.events, kPollWake);
  context.synchronize();
  EXPECT_EQ(work[0].wakes, Work::kItems);
  EXPECT_EQ(work[0].sum, Work::kItems * (Work::kItems + 1) / 2);
}

/// One block waits for a listener's end alone, and another one closes it.
struct Closing {
  Socket listener;
  Flag watched;
  int watch, count, again;
  PollEvent event, none;
};

__global__ void close_what_another_waits_for(Net net, Endpoint at, Closing* closing) {
  const auto block = this_block();
  if (blockIdx.x == 0) {
    const PollSet set = net.open_set(block);
    const Socket listener = net.listen(block, at, 1, patience());
    const int watch = net.watch(block, set, listener, kPollIn | kPollNval);
    if (threadIdx.x == 0) {
      closing->listener = listener;
      closing->watch = watch;
      closing->watched.raise();
    }
    const int count = net.wait(block, set, &closing->event, 1, patience());
    const int again = net.wait(block, set, &closing->none, 1, Deadline::now());
    if (threadIdx.x == 0) closing->count = count, closing->again = again;
  } else {
    closing->watched.wait(block);
    net.close(block, closing->listener);
  }
}

TEST(PollSetWakes, TheEndOfASocketThatIsWatchedForIt) {
  Context context(set_options());
  Mapped<Closing> closing(context, 1);
  launch(context, {.grid = 2, .block = 32}, close_what_another_waits_for, context.net(), loopback(LinkKind::tcp),
         closing.data());
  context.synchronize();
  EXPECT_EQ(closing[0].watch, 0);
  EXPECT_EQ(closing[0].count, 1);
  EXPECT_EQ(closing[0].event.events, kPollWake);
  EXPECT_EQ(closing[0].event.tag, 1u);
  EXPECT_EQ(closing[0].again, 0) << "told once";
}

/// Connections within one context, for tests of host threads.
class Many {
 public:
  Many(int count, LinkKind link, std::uint32_t sockets_max = 64)
      : context_(from_environment(set_options(sockets_max))) {
    listener = net.listen(this_thread(), loopback(link), 64, patience());
    Endpoint where;
    EXPECT_EQ(net.getsockname(listener, where), 0);
    for (int i = 0; i < count; ++i) add(where);
  }
  void add(const Endpoint& where) {
    Socket socket = -EMFILE;  // one that was closed gives its slot back in a moment
    for (const std::uint64_t until_ns = clock_ns() + kPatienceNs; socket == -EMFILE && clock_ns() < until_ns;) {
      socket = net.connect(this_thread(), where, patience());
    }
    near.push_back(socket);
    far.push_back(net.accept(this_thread(), listener, patience()));
    ASSERT_GE(near.back(), 0);
    ASSERT_GE(far.back(), 0);
  }
  void send(int which) const {
    const char byte = 'x';
    ASSERT_EQ(net.send(this_thread(), near[static_cast<std::size_t>(which)], &byte, 1, kWaitAll, patience()), 1);
  }
  void receive(Socket socket) const {
    char byte = 0;
    ASSERT_EQ(net.recv(this_thread(), socket, &byte, 1, 0, patience()), 1);
  }

 private:
  Context context_;

 public:
  conformance::Net net = context_.net();
  Socket listener = -1;
  std::vector<Socket> near, far;
};

class PollSetLinks : public testing::TestWithParam<LinkKind> {};
INSTANTIATE_TEST_SUITE_P(Links, PollSetLinks, testing::Values(LinkKind::tcp, LinkKind::p2p),
                         [](const auto& kind) { return std::string(to_string(kind.param)); });

TEST_P(PollSetLinks, AllThatAreReadyHaveTheirTurn) {
  constexpr int kSockets = 20;
  Many many(kSockets, GetParam());
  const PollSet set = many.net.open_set(this_thread());
  for (int i = 0; i < kSockets; ++i) {
    ASSERT_EQ(many.net.watch(this_thread(), set, many.far[i], kPollIn, i), 0);
    many.send(i);
  }
  // The events of sockets that stay ready fill each call: the others come nevertheless.
  std::set<std::uint64_t> seen;
  std::array<PollEvent, 3> events;
  while (seen.size() < kSockets) {
    const int count = many.net.wait(this_thread(), set, events.data(), 3, patience());
    ASSERT_GT(count, 0);
    for (int i = 0; i < count; ++i) {
      EXPECT_EQ(events[i].events, kPollIn);
      EXPECT_EQ(events[i].socket, many.far[events[i].tag]);
      seen.insert(events[i].tag);
    }
  }
  // All are ready still: each comes once in seven calls.
  std::multiset<std::uint64_t> again;
  for (int call = 0; call < 20; ++call) {
    ASSERT_EQ(many.net.wait(this_thread(), set, events.data(), 3, patience()), 3);
    for (const PollEvent& event : events) again.insert(event.tag);
  }
  for (std::uint64_t tag = 0; tag < kSockets; ++tag) EXPECT_EQ(again.count(tag), 3u) << tag;
}

TEST_P(PollSetLinks, ASocketThatIsClosedLeavesItsPlaceToTheNext) {
  Many many(1, GetParam(), 2);
  const PollSet set = many.net.open_set(this_thread());
  PollEvent event;
  for (int i = 0; i < 20; ++i) {
    const Socket old = many.far.back();
    ASSERT_EQ(many.net.watch(this_thread(), set, old, kPollIn, 1), 0);
    many.send(i);
    if (i % 2 == 0) {
      ASSERT_EQ(many.net.wait(this_thread(), set, &event, 1, patience()), 1);
    }
    char byte = 0;
    many.net.recv(this_thread(), old, &byte, 1, 0, patience());
    ASSERT_EQ(many.net.close(this_thread(), old), 0);
    EXPECT_EQ(many.net.watch(this_thread(), set, old, kPollIn, 1), -EBADF);
    ASSERT_EQ(many.net.close(this_thread(), many.near.back()), 0);
    Endpoint where;
    ASSERT_EQ(many.net.getsockname(many.listener, where), 0);
    many.add(where);
    many.send(i + 1);
    EXPECT_EQ(many.net.wait(this_thread(), set, &event, 1, Deadline::after_ns(1'000'000)), 0)
        << "nobody watches the new one";
    many.receive(many.far.back());
  }
}

TEST_P(PollSetLinks, ASocketMovesFromSetToSet) {
  Many many(1, GetParam());
  const auto self = this_thread();
  const PollSet first = many.net.open_set(self), second = many.net.open_set(self);
  const Socket socket = many.far[0];
  PollEvent event;
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(many.net.watch(self, first, socket, kPollIn, 1), 0);
    EXPECT_EQ(many.net.watch(self, second, socket, kPollIn, 2), -EBUSY);
    EXPECT_EQ(many.net.unwatch(self, second, socket), -ENOENT);
    if (i % 3 != 0) many.send(0);
    if (i % 3 == 1) {
      EXPECT_EQ(many.net.wait(self, first, &event, 1, patience()), 1);
    }
    ASSERT_EQ(many.net.unwatch(self, first, socket), 0);
    ASSERT_EQ(many.net.watch(self, second, socket, kPollIn, 2), 0);
    if (i % 3 == 0) many.send(0);
    ASSERT_EQ(many.net.wait(self, second, &event, 1, patience()), 1);
    EXPECT_EQ(event.tag, 2u);
    EXPECT_EQ(many.net.wait(self, first, &event, 1, Deadline::now()), 0);
    many.receive(socket);
    ASSERT_EQ(many.net.unwatch(self, second, socket), 0);
  }
  ASSERT_EQ(many.net.watch(self, first, socket, kPollIn, 1), 0);
  ASSERT_EQ(many.net.close_set(self, first), 0);
  ASSERT_EQ(many.net.watch(self, second, socket, kPollIn, 3), 0) << "a closed set watches nothing";
  const PollSet third = many.net.open_set(self);
  many.send(0);
  ASSERT_EQ(many.net.wait(self, second, &event, 1, patience()), 1);
  EXPECT_EQ(event.tag, 3u);
  EXPECT_EQ(many.net.wait(self, third, &event, 1, Deadline::now()), 0);
  EXPECT_EQ(many.net.wake(self, first), -EBADF);
}

TEST_P(PollSetLinks, ADirectionThatThisSideHasEndedIsAnEvent) {
  Many many(1, GetParam());
  const PollSet set = many.net.open_set(this_thread());
  ASSERT_EQ(many.net.watch(this_thread(), set, many.far[0], kPollIn | kPollEdge, 1), 0);
  PollEvent event;
  ASSERT_EQ(many.net.wait(this_thread(), set, &event, 1, Deadline::now()), 0);
  std::thread other([&] { many.net.shutdown(this_thread(), many.far[0], Shutdown::read); });
  EXPECT_EQ(many.net.wait(this_thread(), set, &event, 1, patience()), 1);
  EXPECT_EQ(event.events, kPollIn);
  other.join();
}

TEST(PollSetGroups, OneWaitsAtATimeAndClosingTheSetEndsItsWait) {
  Context context(set_options());
  const conformance::Net net = context.net();
  const PollSet set = net.open_set(this_thread());
  std::int64_t result = 0;
  std::thread other([&] {
    PollEvent event;
    do {
      result = net.wait(this_thread(), set, &event, 1, patience());
    } while (result == -EBUSY);
  });
  PollEvent event;
  int mine = 0;
  while ((mine = net.wait(this_thread(), set, &event, 1, Deadline::now())) == 0) {
  }
  EXPECT_EQ(mine, -EBUSY);
  EXPECT_EQ(net.close_set(this_thread(), set), 0);
  other.join();
  EXPECT_EQ(result, -EBADF);
  EXPECT_EQ(net.close_set(this_thread(), set), -EBADF);
}

}  // namespace
}  // namespace gpusock::conformance::poll_sets
