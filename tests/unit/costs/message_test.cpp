// What a message of 64 bytes costs between two kernels' groups, in a context as programs have it.
#include "tests/unit/costs/gate.hpp"
#include "tests/unit/costs/pair.hpp"
#include "tests/unit/costs/snapshot.hpp"

#include <gpusock/gpusock.hpp>
#include <gpusock/launch.hpp>

#include <gtest/gtest.h>

#include <ostream>
#include <string>

namespace gpusock::costs::messages {
namespace {

constexpr unsigned kWarmUp = 64, kRounds = 512, kStream = 1024;
constexpr std::size_t kBytes = 64;

/// What the first block saw between two times at the gate.
struct Seen {
  Counts of_block;
  std::uint64_t switches;
  int wrong;
};

struct Work {
  Net net;
  Socket socket, peer;
  Gate* gate;
  Seen* seen;
};

/// Lets the host look, between the warm-up and what is counted, and after that.
template <class Group>
void pass_gate(const Group& group, const Work& work, bool first) {
  group.sync();
  if (group.thread_rank() != 0) return;
  Seen& seen = *work.seen;
  if (!first) {
    seen.of_block = counts_of_this_thread() - seen.of_block;
    seen.switches = cpu_device::thread_switches() - seen.switches;
  }
  work.gate->pass();
  if (!first) return;
  seen.of_block = counts_of_this_thread();
  seen.switches = cpu_device::thread_switches();
}

template <class Group>
void send(const Group& group, const Work& work, Socket socket) {
  const char bytes[kBytes] = {};
  const std::int64_t sent = work.net.send(group, socket, bytes, kBytes, kWaitAll, patience());
  if (group.thread_rank() == 0 && sent != kBytes) ++work.seen->wrong;
}

template <class Group>
void receive(const Group& group, const Work& work, Socket socket) {
  char bytes[kBytes];
  const std::int64_t got = work.net.recv(group, socket, bytes, kBytes, kWaitAll, patience());
  if (group.thread_rank() == 0 && got != kBytes) ++work.seen->wrong;
}

template <class Group>
void make_round_trips(const Group& group, const Work& work, unsigned times) {
  for (unsigned i = 0; i < times; ++i) {
    if (blockIdx.x != 0) receive(group, work, work.peer);
    send(group, work, blockIdx.x == 0 ? work.socket : work.peer);
    if (blockIdx.x == 0) receive(group, work, work.socket);
  }
}

template <class Group>
void talk(const Group& group, const Work& work) {
  make_round_trips(group, work, kWarmUp);
  if (blockIdx.x == 0) pass_gate(group, work, true);
  make_round_trips(group, work, kRounds);
  if (blockIdx.x == 0) pass_gate(group, work, false);
}

__global__ void talk_by_thread(Work work) { talk(this_thread(), work); }
__global__ void talk_by_block(Work work) { talk(this_block(), work); }

/// The second block sends once the first one has told it to.
template <class Group>
void stream(const Group& group, const Work& work) {
  make_round_trips(group, work, kWarmUp);
  if (blockIdx.x != 0) {
    receive(group, work, work.peer);
    for (unsigned i = 0; i < kStream; ++i) send(group, work, work.peer);
    return receive(group, work, work.peer);
  }
  pass_gate(group, work, true);
  send(group, work, work.socket);
  for (unsigned i = 0; i < kStream; ++i) receive(group, work, work.socket);
  pass_gate(group, work, false);
  send(group, work, work.socket);
}

__global__ void stream_by_thread(Work work) { stream(this_thread(), work); }
__global__ void stream_by_block(Work work) { stream(this_block(), work); }

struct Case {
  const char* name;
  void (*talk)(Work);
  void (*stream)(Work);
  unsigned threads;
  const char* link;
  bool assist;  ///< callers that wait make the proxy's steps
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class Messages : public testing::TestWithParam<Case> {
 protected:
  /// Returns what has happened between the two times at the gate.
  static Counts run(void (*kernel)(Work), Seen& result) {
    const Case& of = GetParam();
    Options options = quiet_options();
    options.assist = of.assist;
    Context context(options);
    const Pair pair(context, of.link);
    Mapped<Seen> seen(context, 1);
    Gate gate;
    launch(context, {.grid = 2, .block = of.threads}, kernel,
           Work{context.net(), pair.socket, pair.peer, &gate, seen.data()});
    gate.await();
    settle(context);
    const Counts before = counts_after_steps(context);
    gate.open();
    gate.await();
    const Counts counts = counts_after_steps(context) - before;
    gate.open();
    context.synchronize();
    result = seen[0];
    EXPECT_EQ(result.wrong, 0);
    EXPECT_EQ(counts.others(), 0u) << counts;
    EXPECT_EQ(counts.allocations, 0u);
    return counts;
  }
  static bool on_network() { return GetParam().link != std::string("p2p"); }
};

TEST_P(Messages, ARoundTripIsOneCallOfTheSystemForEachSendAndRecv) {
  Seen seen;
  const Counts counts = run(GetParam().talk, seen);
  EXPECT_EQ(counts.sent(), on_network() ? 2 * kRounds : 0) << counts;
  EXPECT_EQ(counts.received(), on_network() ? 2 * kRounds : 0) << counts;
  EXPECT_LE(counts.wakes(), on_network() ? 2 * kRounds : 0) << "one for each message at most: " << counts;
  // Each thread is switched to once in a call; and once before the second gate.
  EXPECT_LE(seen.switches, GetParam().threads == 1 ? 0 : (2 * kRounds + 1) * GetParam().threads);
  if (on_network()) return;
  EXPECT_EQ(seen.of_block.looks(), 0u) << "nor does a caller look at the network: " << seen.of_block;
  EXPECT_EQ(seen.of_block.wakes(), 0u) << seen.of_block;
}

TEST_P(Messages, AStreamNeedsNoMoreCallsThanItHasMessages) {
  Seen seen;
  const Counts counts = run(GetParam().stream, seen);
  EXPECT_LE(counts.sent(), on_network() ? 1 + kStream : 0) << counts;
  EXPECT_LE(counts.received(), on_network() ? 1 + kStream : 0) << counts;
  EXPECT_LE(counts.wakes(), on_network() ? 1 + kStream : 0) << counts;
  EXPECT_LE(seen.switches, GetParam().threads == 1 ? 0 : (2 + kStream) * GetParam().threads);
}

INSTANTIATE_TEST_SUITE_P(Of, Messages,
                         testing::Values(Case{"ThreadOnTcp", talk_by_thread, stream_by_thread, 1, "tcp", true},
                                         Case{"ThreadOnTcpUnassisted", talk_by_thread, stream_by_thread, 1, "tcp",
                                              false},
                                         Case{"BlockOnTcp", talk_by_block, stream_by_block, 32, "tcp", true},
                                         Case{"ThreadOnP2p", talk_by_thread, stream_by_thread, 1, "p2p", true},
                                         Case{"BlockOnP2p", talk_by_block, stream_by_block, 32, "p2p", true}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace gpusock::costs::messages
