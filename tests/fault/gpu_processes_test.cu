// Kernels of two processes, which meet in GPU memory or in host rings: what they say to each other arrives, and what
// happens when one process is stopped or killed. (A GPU's kernels run on when their process is stopped.)
// GPUSOCK_TEST_GPUS=2: each process has a GPU of its own.
#include "peer.hpp"

#include <gpusock/device.cuh>
#include <gpusock/gpusock.hpp>
#include <gpusock/launch.hpp>

#include "tests/support/device_kind.hpp"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>

namespace gpusock::fault {
namespace {

constexpr std::size_t kMessage = 3000;  // no divisor of a ring's bytes

/// What the host tells the kernel to do next, and what came of it.
struct Script {
  std::uint64_t rounds = 0;  ///< so many are to be done; kEnd: no more
  std::uint64_t done = 0;
  bool sends = true;
  std::uint64_t wait_ns = 0;  ///< for the answer
  std::int64_t received = 0;
  bool same = false;  ///< what came is what was sent in the last round that sent
};
constexpr std::uint64_t kEnd = ~std::uint64_t{0};

__global__ void talk(Net net, Endpoint to, Script* script) {
  const Socket socket = net.connect(this_thread(), to, patience());
  unsigned char out[kMessage], in[kMessage];
  for (std::uint64_t round = 1;; ++round) {
    std::uint64_t asked = 0;
    while ((asked = detail::SystemRef(script->rounds).load(ringbuf::kAcquire)) < round) __nanosleep(1000);
    if (asked == kEnd) break;
    if (script->sends) {
      for (std::size_t i = 0; i < kMessage; ++i) out[i] = static_cast<unsigned char>(i * 7 + round);
      net.send(this_thread(), socket, out, kMessage, kWaitAll, patience());
    }
    script->received = net.recv(this_thread(), socket, in, kMessage, kWaitAll, Deadline::after_ns(script->wait_ns));
    script->same = true;
    for (std::size_t i = 0; i < kMessage; ++i) script->same = script->same && in[i] == out[i];
    detail::SystemRef(script->done).store(round, ringbuf::kRelease);
  }
  net.close(this_thread(), socket);
}

/// The process that is made first has the memory that both use.
enum class First { peer, own };
void PrintTo(First first, std::ostream* out) { *out << (first == First::peer ? "peer" : "own"); }

class GpuProcesses : public testing::TestWithParam<First> {
 protected:
  static Options options() {
    Options chosen = Options::from_env();
    chosen.ring_bytes = 16 << 10;
    chosen.connections_max = 4;
    return chosen;
  }
  static bool can_run() {
    const char* rings = std::getenv("GPUSOCK_TEST_HOST_RINGS");
    return test::like_a_gpu() && rings != nullptr && std::string_view(rings) == "shared";
  }
  static bool is_set(const char* variable, std::string_view value) {
    const char* const text = std::getenv(variable);
    return text != nullptr && text == value;
  }
  static bool are_two_gpus() { return is_set("GPUSOCK_TEST_GPUS", "2"); }
  /// Why they do not meet in GPU memory; empty: they do. On two GPUs that takes an earlier context without kernels, and
  /// the peer's run as soon as it says where it listens.
  static std::string why_in_host_memory(First first) {
    if (Options::from_env().ring == RingPlacement::host) return "GPUSOCK_RING=host";
    if (!are_two_gpus()) return {};
    if (is_set("GPUSOCK_CPU_SHAPE", "gpus-apart") || is_set("GPUSOCK_TEST_PEERS", "off")) return "on another GPU: ";
    return first == First::peer ? "on another GPU: its kernels ran when this context was made" : "";
  }

  /// The two processes, connected.
  struct Pair {
    explicit Pair(First first) {
      if (first == First::own) context.emplace(options());
      if (are_two_gpus()) setenv("GPUSOCK_GPU", "1", 1);
      peer.emplace("kernel", "127.0.0.1:0,link=p2p");
      unsetenv("GPUSOCK_GPU");
      const std::string at = peer->read_line();
      if (first == First::peer) context.emplace(options());
      script.emplace(*context, 1);
      launch(*context, {}, talk, context->net(), Endpoint::parse(at + ",link=p2p"), script->data());
    }
    ~Pair() { end(); }
    /// No kernel of this process runs any more.
    void end() {
      raise(kEnd);
      context->synchronize();
    }
    void raise(std::uint64_t rounds) { detail::SystemRef((*script)[0].rounds).store(rounds, ringbuf::kRelease); }
    /// One round of the kernel's; what its recv() returned.
    std::int64_t round(bool sends = true, std::uint64_t wait_ns = kPatienceNs) {
      Script& its = (*script)[0];
      its.sends = sends;
      its.wait_ns = wait_ns;
      const std::uint64_t number = its.rounds + 1;
      raise(number);
      while (detail::SystemRef(its.done).load(ringbuf::kAcquire) < number) std::this_thread::yield();
      return its.received;
    }
    bool same() { return (*script)[0].same; }
    SocketInfo info() {
      for (const SocketInfo& each : context->sockets()) {
        if (each.state == SocketState::connected) return each;
      }
      return {};
    }

    std::optional<Context> context;
    std::optional<Peer> peer;
    std::optional<Mapped<Script>> script;
  };

  void SetUp() override {
    if (!can_run()) GTEST_SKIP() << "it is for GPUs' processes that share rings by a name";
  }
};

TEST_P(GpuProcesses, TalkInGpuMemory) {
  Pair pair(GetParam());
  for (int i = 0; i < 30; ++i) {  // several times around the rings
    ASSERT_EQ(pair.round(), static_cast<std::int64_t>(kMessage));
    ASSERT_TRUE(pair.same());
  }
  const std::string why = why_in_host_memory(GetParam());
  const RingPlacement place = why.empty() ? RingPlacement::device : RingPlacement::host;
  const SocketInfo info = pair.info();
  EXPECT_EQ(info.places, (RingPlaces{place, place, place, place, place, info.places.status})) << info.link_reason;
  const bool says_why = !why.empty() && Options::from_env().ring != RingPlacement::host;  // what was asked for is none
  EXPECT_EQ(info.link_reason.find("p2p in GPU memory: ") == 0, says_why) << info.link_reason;
  EXPECT_TRUE(!says_why || info.link_reason.find(why) != std::string::npos) << info.link_reason;
  EXPECT_EQ(info.rx_bytes, 30 * kMessage);
  EXPECT_EQ(info.tx_bytes, 30 * kMessage);
}

TEST_P(GpuProcesses, AKilledPeerResetsTheConnection) {
  Pair pair(GetParam());
  ASSERT_EQ(pair.round(), static_cast<std::int64_t>(kMessage));
  pair.peer->kill_and_wait();
  EXPECT_EQ(pair.round(false), -ECONNRESET);
  pair.end();
  // The memory of the dead one is still mapped here, and the next peer is another one.
  Pair next(First::own);
  EXPECT_EQ(next.round(), static_cast<std::int64_t>(kMessage));
  EXPECT_TRUE(next.same());
}

/// A GPU does not stop a kernel with its process, and this kernel needs nothing of the host.
TEST_P(GpuProcesses, AStoppedPeersKernelGoesOnAndAnswers) {
  Pair pair(GetParam());
  ASSERT_EQ(pair.round(), static_cast<std::int64_t>(kMessage));
  pair.peer->stop_host();
  for (int i = 0; i < 30; ++i) {  // several times around the rings
    ASSERT_EQ(pair.round(), static_cast<std::int64_t>(kMessage));
    ASSERT_TRUE(pair.same());
  }
  pair.peer->let_host_go_on();
  EXPECT_EQ(pair.round(), static_cast<std::int64_t>(kMessage));
  EXPECT_TRUE(pair.same());
}

TEST_P(GpuProcesses, AKernelThatSaysNothingIsWaitedFor) {
  Pair pair(GetParam());
  EXPECT_EQ(pair.round(false, 30'000'000), -ETIMEDOUT);
  EXPECT_EQ(pair.round(), static_cast<std::int64_t>(kMessage));
  EXPECT_TRUE(pair.same());
}

INSTANTIATE_TEST_SUITE_P(First, GpuProcesses, testing::Values(First::peer, First::own),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace gpusock::fault
