// Kernels of two GPUs in one process, whose rings lie in the memory of both: what each call that waits returns when the
// other side closes, ends or stands still, or its own does. Then the next peer connects.
#include "full_ring.hpp"
#include "stall.hpp"

#include <gpusock/device.cuh>
#include <gpusock/gpusock.hpp>
#include <gpusock/launch.hpp>

#include "tests/support/device_kind.hpp"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <sched.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <string_view>

namespace gpusock::fault::two_gpus {
namespace {

enum class Fault { peer_closed, peer_ended, peer_stalled, own_stalled, own_ended };
enum class Call { send, reserve, recv, recv_all, peek, poll };
constexpr const char* kFaults[] = {"peer_closed", "peer_ended", "peer_stalled", "own_stalled", "own_ended"};
constexpr const char* kCalls[] = {"send", "reserve", "recv", "recv_all", "peek", "poll"};
constexpr int kCallCount = std::size(kCalls);

void PrintTo(Fault fault, std::ostream* out) { *out << kFaults[static_cast<int>(fault)]; }

constexpr std::uint64_t kDeadlineNs = 100'000'000;  ///< of a call that nothing ends before

GPUSOCK_FN bool is_stalled(Fault fault) { return fault == Fault::peer_stalled || fault == Fault::own_stalled; }
GPUSOCK_FN bool needs_room(Call call) { return call == Call::send || call == Call::reserve; }

using Answers = std::set<std::int64_t>;
Answers expected(Call call, Fault fault) {
  if (fault == Fault::own_ended) return {-ECANCELED};
  if (is_stalled(fault)) return call == Call::poll ? Answers{0} : Answers{-ETIMEDOUT};
  if (call == Call::poll) return {1};
  if (needs_room(call)) return {-EPIPE};
  return {0};
}

struct Cell {
  Socket socket = -1;
  std::uint64_t waiting = 0;
  std::int64_t result = 0;
};

__global__ void open_listener(Net net, Endpoint at, Socket* listener, Endpoint* local) {
  *listener = net.listen(this_thread(), at, kCallCount, patience());
  if (*listener >= 0) net.getsockname(*listener, *local);
}

/// Each connection says which cell it is for.
__global__ void accept_all(Net net, Socket listener, Cell* cells) {
  for (int i = 0; i < kCallCount; ++i) {
    const Socket socket = net.accept(this_thread(), listener, patience());
    char which = 0;
    if (socket < 0 || net.recv(this_thread(), socket, &which, 1, kWaitAll, patience()) != 1) return;
    cells[static_cast<int>(which)].socket = socket;
  }
}

/// The other GPU's: a block for each connection, which reads nothing and closes when it is told to.
__global__ void stay(Net net, Endpoint to, std::uint64_t* leave) {
  const Socket socket = net.connect(this_thread(), to, patience());
  const char which = static_cast<char>(blockIdx.x);
  net.send(this_thread(), socket, &which, 1, kWaitAll, patience());
  while (detail::SystemRef(*leave).load(ringbuf::kAcquire) == 0) {
    if (net.poll(this_thread(), nullptr, 0, Deadline::after_ns(100'000)) < 0) return;  // the context ends
  }
  net.close(this_thread(), socket);
}

/// A block for each call.
__global__ void ask(Net net, Cell* cells, std::uint8_t* data, std::uint64_t deadline_ns) {
  Cell& cell = cells[blockIdx.x];
  const auto self = this_thread();
  const Call call = static_cast<Call>(blockIdx.x);
  std::uint8_t* const own = data + blockIdx.x * kRingBytes;
  if (needs_room(call)) fill(net, cell.socket, own, kRingBytes, 0);
  detail::SystemRef(cell.waiting).store(1, ringbuf::kRelease);
  const Deadline deadline = Deadline::after_ns(deadline_ns);
  PollEntry entry{cell.socket, kPollIn, 0};
  switch (call) {
    case Call::send:
      cell.result = net.send(self, cell.socket, own, 100, 0, deadline);
      break;
    case Call::reserve:
      cell.result = net.reserve(self, cell.socket, 100, deadline).size;
      break;
    case Call::recv:
      cell.result = net.recv(self, cell.socket, own, 100, 0, deadline);
      break;
    case Call::recv_all:
      cell.result = net.recv(self, cell.socket, own, 100, kWaitAll, deadline);
      break;
    case Call::peek:
      cell.result = net.peek(self, cell.socket, 100, deadline).size;
      break;
    case Call::poll:
      cell.result = net.poll(self, &entry, 1, deadline);
      break;
  }
}

__global__ void close_all(Net net, Cell* cells) { net.close(this_thread(), cells[blockIdx.x].socket); }

Options options_of(int gpu) {
  Options options = Options::from_env();
  options.gpu = gpu;
  options.ring_bytes = kRingBytes;
  options.sockets_max = 2 * kCallCount + 2;
  options.connections_max = 2 * kCallCount;
  return options;
}

/// The context on the other GPU, with its kernel.
struct PeerGpu {
  explicit PeerGpu(const Endpoint& to) { launch(context, {.grid = kCallCount}, stay, context.net(), to, leave.data()); }
  void close() { detail::SystemRef(leave[0]).store(1, ringbuf::kRelease); }

  Context context{options_of(1)};
  Mapped<std::uint64_t> leave{context, 1};
};

class TwoGpusFaults : public testing::TestWithParam<Fault> {
 protected:
  void SetUp() override {
    if (!test::like_a_gpu()) GTEST_SKIP() << "it is for GPUs";
    try {
      own_ = std::make_unique<Own>();
      Context(options_of(1));
    } catch (const Error& error) {
      if (error.code().value() != ENODEV) throw;
      GTEST_SKIP() << error.what();
    }
  }

  /// This process's GPU 0.
  struct Own {
    Own() {
      Mapped<Endpoint> local(context, 1);
      launch(context, {}, open_listener, context.net(), Endpoint::parse("127.0.0.1:0,link=p2p"), listener.data(),
             local.data());
      context.synchronize();
      at = local[0];
      at.link = LinkKind::p2p;
    }
    Context context{options_of(0)};
    Mapped<Socket> listener{context, 1};
    Mapped<Cell> cells{context, kCallCount};
    DeviceBuffer<std::uint8_t> data{context, kCallCount* kRingBytes};
    Endpoint at;
  };

  void meet() {
    for (Cell& cell : own_->cells) cell = Cell();
    peer_.emplace(own_->at);
    launch(own_->context, {}, accept_all, own_->context.net(), own_->listener[0], own_->cells.data());
    own_->context.synchronize();
    for (const Cell& cell : own_->cells) ASSERT_GE(cell.socket, 0);
  }

  /// Returns when each block is about to make its call.
  void ask_all(Fault fault) {
    launch(own_->context, {.grid = kCallCount}, ask, own_->context.net(), own_->cells.data(), own_->data.data(),
           is_stalled(fault) ? kDeadlineNs : kPatienceNs);
    for (Cell& cell : own_->cells) {
      while (detail::SystemRef(cell.waiting).load(ringbuf::kAcquire) == 0) sched_yield();
    }
  }

  void break_it(Fault fault) {
    switch (fault) {
      case Fault::peer_closed:
        peer_->close();
        break;
      case Fault::peer_ended:
        peer_.reset();
        break;
      case Fault::peer_stalled:
        stalled_.emplace(stall(peer_->context));
        break;
      case Fault::own_stalled:
        stalled_.emplace(stall(own_->context));
        break;
      case Fault::own_ended:
        own_->context.cancel();
        break;
    }
  }

  void check(Fault fault) {
    own_->context.synchronize();
    stalled_.reset();
    for (int call = 0; call < kCallCount; ++call) {
      const std::int64_t result = own_->cells[call].result;
      EXPECT_TRUE(expected(Call(call), fault).contains(result)) << kCalls[call] << ": " << result;
    }
  }

  void meet_ask_and_break(Fault fault) {
    meet();
    if (HasFatalFailure()) return;
    check_places();
    ask_all(fault);
    break_it(fault);
    check(fault);
    launch(own_->context, {.grid = kCallCount}, close_all, own_->context.net(), own_->cells.data());
    own_->context.synchronize();
    peer_.reset();
  }

  std::unique_ptr<Own> own_;
  std::optional<PeerGpu> peer_;
  std::optional<std::unique_lock<std::mutex>> stalled_;

 private:
  void check_places() {
#if GPUSOCK_KERNELS_ON_CPU  // else it depends on the machine
    const auto is = [](const char* variable, std::string_view value) {
      const char* const it = std::getenv(variable);
      return it != nullptr && it == value;
    };
    const bool apart = is("GPUSOCK_CPU_SHAPE", "gpus-apart") || is("GPUSOCK_TEST_PEERS", "off");
    const bool host = apart || Options::from_env().ring == RingPlacement::host;
    const RingPlacement place = host ? RingPlacement::host : RingPlacement::device;
    for (const SocketInfo& each : own_->context.sockets()) {
      if (each.state != SocketState::connected) continue;
      EXPECT_EQ(each.places, (RingPlaces{place, place, place, place, place, each.places.status})) << each.link_reason;
    }
#endif
  }
};

TEST_P(TwoGpusFaults, EachCallReturnsAndTheNextPeerConnects) {
  meet_ask_and_break(GetParam());
  if (GetParam() == Fault::own_ended || HasFatalFailure()) return;
  SCOPED_TRACE("the next peer");
  meet_ask_and_break(Fault::peer_closed);
}

INSTANTIATE_TEST_SUITE_P(Faults, TwoGpusFaults,
                         testing::Values(Fault::peer_closed, Fault::peer_ended, Fault::peer_stalled, Fault::own_stalled,
                                         Fault::own_ended),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace gpusock::fault::two_gpus
