// What messages cost the proxy. The tests make its steps by hand, and keep the engine's thread out: no count depends on
// time, only on the number of steps that the system's network takes.
#include "tests/unit/costs/pair.hpp"
#include "tests/unit/costs/snapshot.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <mutex>
#include <thread>

namespace gpusock::costs::by_hand {
namespace {

using proxy::Proxy;

constexpr std::size_t kBytes = 64;
constexpr unsigned kRounds = 256, kTogether = 64, kTurns = 1024;
/// How often a quick step of a proxy with few active connections asks epoll.
constexpr unsigned kPollInterval = 16;
/// After so many steps without news all connections rest: twice Proxy's own number, as the first rest ends once the
/// proxy finds that the rings have changed meanwhile.
constexpr unsigned kIdleSteps = 2 * 257 + kPollInterval;

/// A context whose proxy makes a step where the test says so, and connections between its own sockets.
class ByHand {
 public:
  explicit ByHand(const char* link, unsigned pairs = 1) {
    for (unsigned i = 0; i < pairs; ++i) pairs_.emplace_back(context_, link);
    settle(context_);
    held_ = context_.impl().engine.suspend();
    const Deadline until = patience();
    while (rings() && !until.passed()) std::this_thread::yield();
    for (unsigned i = 0; i < 2 * kPollInterval; ++i) make_round();
    start();
  }

  /// From here on it counts.
  void start() {
    steps_ = 0;
    before_ = counts_of_this_thread();
    all_before_ = counts_so_far();
  }
  /// The calls of this thread, and the allocations of all.
  Counts counts() const {
    Counts own = counts_of_this_thread() - before_;
    own.allocations = (counts_so_far() - all_before_).allocations;
    return own;
  }
  std::uint64_t steps() const { return steps_; }

  void step(Proxy::Pass pass = Proxy::Pass::quick) {
    context_.impl().proxy.step(detail::monotonic_ns(), pass);
    ++steps_;
  }
  /// Lets the engine's own thread go on for a moment.
  void let_engine_go_on() {
    held_.unlock();
    std::this_thread::yield();
    held_.lock();
  }

  /// A message on each connection.
  void make_round() {
    for (const Pair& pair : pairs_) send(pair);
    for (const Pair& pair : pairs_) receive(pair, kBytes);
  }
  /// Messages on the first connection that wait for the proxy together.
  void send_together() {
    for (unsigned i = 0; i < kTogether; ++i) send(pairs_.front());
  }
  void receive_together() { receive(pairs_.front(), kTogether * kBytes); }

 private:
  void send(const Pair& pair) {
    const char bytes[kBytes] = {};
    EXPECT_EQ(net_.send(this_thread(), pair.socket, bytes, kBytes, kDontWait), std::int64_t{kBytes});
  }
  /// Makes steps until so many bytes have come.
  void receive(const Pair& pair, std::size_t bytes) {
    char memory[kTogether * kBytes];
    const Deadline until = patience();
    for (std::size_t done = 0; done < bytes;) {
      const std::int64_t got = net_.recv(this_thread(), pair.peer, memory, bytes - done, kDontWait);
      if (got > 0) done += static_cast<std::size_t>(got);
      if (got == -EAGAIN) step();
      ASSERT_FALSE(until.passed());
    }
  }
  /// True if a commit has woken the engine's thread, which fell asleep before the test kept it out.
  bool rings() {
    const Counts earlier = counts_of_this_thread();
    make_round();
    return (counts_of_this_thread() - earlier).wakes() != 0;
  }

  Context context_{quiet_options()};
  Net net_ = context_.net();
  std::deque<Pair> pairs_;
  std::unique_lock<std::mutex> held_;
  std::uint64_t steps_ = 0;
  Counts before_, all_before_;
};

/// Calls that send, and that receive, whatever they moved: with one piece of memory, or with two where a ring ends.
std::uint64_t sends(const Counts& counts) { return counts.made[k_send] + counts.made[k_sendmsg]; }
std::uint64_t reads(const Counts& counts) { return counts.made[k_recv] + counts.made[k_recvmsg]; }

/// Nothing that has no place in a step.
void expect_lean(const Counts& counts) {
  EXPECT_EQ(counts.wakes(), 0u) << "the engine's thread is awake: " << counts;
  EXPECT_EQ(counts.waits(), 0u) << counts;
  EXPECT_EQ(counts.others(), 0u) << counts;
  EXPECT_EQ(counts.allocations, 0u);
}

TEST(CostsByHand, AMessageIsOneCallOfTheSenderAndOneOfTheReceiver) {
  ByHand proxy("tcp");
  for (unsigned i = 0; i < kRounds; ++i) proxy.make_round();
  const Counts counts = proxy.counts();
  EXPECT_EQ(sends(counts), kRounds);
  EXPECT_EQ(counts.received(), kRounds);
  EXPECT_LE(reads(counts), 2 * proxy.steps()) << "each step reads each of the two sockets once";
  EXPECT_LE(counts.made[k_epoll_wait], proxy.steps() / kPollInterval + 1);
  expect_lean(counts);
}

TEST(CostsByHand, MessagesThatWaitTogetherAreSentTogether) {
  ByHand proxy("tcp");
  for (unsigned i = 0; i < kRounds; ++i) {
    proxy.send_together();
    proxy.receive_together();
  }
  const Counts counts = proxy.counts();
  EXPECT_EQ(sends(counts), kRounds);
  EXPECT_EQ(counts.received(), kRounds);
  expect_lean(counts);
}

TEST(CostsByHand, WithManyConnectionsThoseAreReadThatHaveNews) {
  constexpr unsigned kPairs = 8;
  ByHand proxy("tcp", kPairs);
  for (unsigned i = 0; i < kRounds; ++i) proxy.make_round();
  const Counts counts = proxy.counts();
  EXPECT_EQ(sends(counts), kRounds * kPairs);
  EXPECT_EQ(counts.received(), kRounds * kPairs);
  EXPECT_EQ(reads(counts), kRounds * kPairs) << "none finds nothing";
  EXPECT_LE(counts.made[k_epoll_wait], proxy.steps());
  expect_lean(counts);
}

TEST(CostsByHand, AStepWithNothingToDoAsksEpollAtMost) {
  ByHand proxy("tcp");
  for (unsigned i = 0; i <= kIdleSteps; ++i) proxy.step();
  for (const Proxy::Pass pass : {Proxy::Pass::quick, Proxy::Pass::full}) {
    proxy.start();
    for (unsigned i = 0; i < kRounds; ++i) proxy.step(pass);
    const Counts counts = proxy.counts();
    EXPECT_EQ(counts.made[k_epoll_wait], pass == Proxy::Pass::full ? kRounds : kRounds / kPollInterval);
    EXPECT_EQ(reads(counts), 0u);
    EXPECT_EQ(sends(counts), 0u);
    expect_lean(counts);
  }
}

TEST(CostsByHand, AMessageOnP2pNeedsNoCallAndNoProxy) {
  ByHand proxy("p2p");
  for (unsigned i = 0; i < kRounds; ++i) proxy.make_round();
  const Counts counts = proxy.counts();
  EXPECT_EQ(proxy.steps(), 0u);
  EXPECT_EQ(counts.looks(), 0u) << counts;
  EXPECT_EQ(counts.sent(), 0u) << counts;
  expect_lean(counts);
}

/// A caller's own steps, while no caller sleeps until there is news.
TEST(CostsByHand, AnAssistedMessageWakesNoCaller) {
  Context context(quiet_options());
  const Pair pair(context, "tcp");
  const Net net = context.net();
  settle(context);
  const Counts before = counts_after_steps(context);
  for (unsigned i = 0; i < kRounds; ++i) {
    char bytes[kBytes] = {};
    ASSERT_EQ(net.send(this_thread(), pair.socket, bytes, kBytes, kDontWait), std::int64_t{kBytes});
    const Deadline until = patience();
    while (net.recv(this_thread(), pair.peer, bytes, kBytes, kDontWait) == -EAGAIN && !until.passed())
      context.impl().engine.assist(detail::monotonic_ns(), 0);
  }
  const Counts counts = counts_after_steps(context) - before;
  EXPECT_EQ(counts.sent(), kRounds) << counts;
  EXPECT_EQ(counts.received(), kRounds) << counts;
  EXPECT_EQ(counts.made[k_futex_wake], 0u) << counts;
  EXPECT_EQ(counts.others(), 0u) << counts;
  EXPECT_EQ(counts.allocations, 0u);
}

/// The thread is kept out from when it is rung until all messages are sent, as where it gets no processor.
TEST(CostsByHand, ASleepingThreadIsRungOnceForManyMessages) {
  constexpr unsigned kSleeps = 16;
  ByHand proxy("tcp");
  unsigned sleeps = 0;
  for (const Deadline until = patience(); sleeps < kSleeps && !until.passed();) {
    proxy.let_engine_go_on();
    proxy.start();
    proxy.send_together();
    const std::uint64_t rings = proxy.counts().made[k_write];
    EXPECT_LE(rings, 1u);
    if (rings != 0) ++sleeps;
    proxy.receive_together();
  }
  EXPECT_EQ(sleeps, kSleeps);
}

/// While callers assist, the thread keeps away for some time. A caller that has waited for long wakes it, and it does
/// not keep away again before the next step of a caller.
TEST(CostsByHand, AThreadThatKeepsAwayIsRungOnce) {
  Context context(quiet_options());
  proxy::Engine& engine = context.impl().engine;
  std::uint64_t rings = 0;
  for (const Deadline until = patience(); rings == 0 && !until.passed();) {
    engine.assist(detail::monotonic_ns(), 0);  // makes a step
    std::this_thread::yield();
    const Counts before = counts_of_this_thread();
    for (unsigned i = 0; i < kTurns; ++i) {
      engine.assist(detail::monotonic_ns(), 10 * proxy::Engine::kAssistNs);
      std::this_thread::yield();
    }
    rings = (counts_of_this_thread() - before).made[k_write];
    EXPECT_LE(rings, 2u);  // it may have begun to keep away just before the step, and does so after it
  }
  EXPECT_NE(rings, 0u);
}

/// Bytes come by p2p without steps, but the end of a stream does not: who waits makes steps, and then wakes the thread.
TEST(CostsByHand, AThreadThatKeepsAwayIsRungByWhoWaitsOnP2p) {
  Context context(quiet_options());
  const Pair pair(context, "p2p");
  const Net net = context.net();
  std::uint64_t rings = 0;
  for (const Deadline until = patience(); rings == 0 && !until.passed();) {
    context.impl().engine.assist(detail::monotonic_ns(), 0);
    std::this_thread::yield();
    const Counts before = counts_of_this_thread();
    char byte = 0;
    EXPECT_EQ(net.recv(this_thread(), pair.peer, &byte, 1, 0, Deadline::after_ms(1)), -ETIMEDOUT);
    rings = (counts_of_this_thread() - before).made[k_write];
    EXPECT_LE(rings, 2u);
  }
  EXPECT_NE(rings, 0u);
}

/// The connector's hello, proof and choice; the acceptor's hello with its proof, its offers, and that it is ready.
TEST(CostsByHand, AConnectionOnP2pIsSetUpBySixMessages) {
  Context context(quiet_options());
  const Counts before = counts_so_far();
  const Pair pair(context, "p2p");
  EXPECT_EQ((counts_so_far() - before).sent(), 6u);
}

}  // namespace
}  // namespace gpusock::costs::by_hand
