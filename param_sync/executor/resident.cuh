#pragma once
/// @file Lanes that stay for a whole training. param_sync/detail/exchange_words.cuh has the words by which they
/// and other kernels meet.

#include "param_sync/executor/handover.cuh"
#include "param_sync/executor/lane.cuh"
#include "param_sync/executor/traced_op.hpp"

namespace param_sync::executor {

/// A tensor that is exchanged in every step, by a schedule of its own. By value, or in device memory.
struct Exchange {
  Run run;                 ///< its number is the step's: from 1 on
  int first_block = 0;     ///< blocks [first_block, first_block + run.lane_count) are its lanes
  bool all_apply = false;  ///< each rank gets the sums, and applies the optimizer to all of them
  std::uint64_t ready_per_step = 1;
  int places = 0;                        ///< of run.places
  std::uint64_t leading = 0;             ///< lanes whose first op leads()
  bool gives_way = false;                ///< to the exchanges before it: what they have to send goes first
  std::uint64_t slots = 0;               ///< at most so many other ranks may send to this one at a time; 0: any number
  std::uint64_t* slots_taken = nullptr;  ///< by all exchanges
  ExchangeWords* words = nullptr;
  TracedOp* trace = nullptr;         ///< trace_of_block for each block, 0 at the beginning
  std::uint64_t trace_of_block = 0;  ///< room for the ops of traced_steps
  std::uint64_t traced_steps = 0;
  std::uint64_t* positions = nullptr;  ///< mapped: by block, how many ops it has completed in all steps
};

/// The block waits for the gradients of a step. How long that takes is the other kernels' matter. Block-collective.
__device__ inline bool await_gradients(const Exchange& exchange, std::uint64_t step) {
  const DeviceWord ready(exchange.words->ready);
  const std::uint64_t wanted = exchange.ready_per_step * (step + 1);
  return block_awaits([&] { return ready.load(cuda::memory_order_acquire) >= wanted; },  // L10, pairs with L9
                      [&] { return has_failed(exchange.run); });
}

/// What a lane has sent and received in a step. One thread.
struct Traffic {
  std::uint64_t sent[2] = {};  ///< gradients, weights
  std::uint64_t received[2] = {};
  std::uint64_t in_place = 0;

  /// `written`: a kernel has written what was sent into the ring.
  __device__ void add(const LaneOp& op, std::uint64_t words, bool written) {
    const std::uint64_t bytes = sizeof(MessageHeader) + words * sizeof(float);
    if (written) in_place += bytes;
    if (op.out != schedule::kNobody) sent[op.of_weights ? 1 : 0] += bytes;
    if (op.in != schedule::kNobody) received[op.of_weights ? 1 : 0] += bytes;
  }

  __device__ void count(ExchangeWords& words) const {
    // relaxed, all: read when all kernels have ended
    DeviceWord(words.pushed_bytes).fetch_add(sent[0], cuda::memory_order_relaxed);
    DeviceWord(words.in_place_bytes).fetch_add(in_place, cuda::memory_order_relaxed);
    DeviceWord(words.published_bytes).fetch_add(sent[1], cuda::memory_order_relaxed);
    DeviceWord(words.gathered_bytes).fetch_add(received[0], cuda::memory_order_relaxed);
    DeviceWord(words.pulled_bytes).fetch_add(received[1], cuda::memory_order_relaxed);
  }
};

/// A lane has ended a step. The last one publishes the version. One thread, after a barrier.
__device__ inline void end_step(const Exchange& exchange, std::uint64_t step, ExchangeTimes& times, int exchanges) {
  const std::uint64_t all = static_cast<std::uint64_t>(exchange.run.lane_count) * (step + 1);
  const DeviceWord ended(exchange.words->lanes_ended);
  if (ended.fetch_add(1, cuda::memory_order_acq_rel) + 1 != all) return;  // L11
  // relaxed: as all of ExchangeTimes
  const std::uint64_t versions = DeviceWord(times.versions).fetch_add(1, cuda::memory_order_relaxed) + 1;
  if (versions % static_cast<std::uint64_t>(exchanges) == 0) end_communication(times, gpusock::clock_ns());
  DeviceWord(exchange.words->version).store(step + 1, cuda::memory_order_release);  // L12, pairs with L13
}

/// True if the op sends what its rank has from the beginning.
GPUSOCK_FN inline bool leads(const LaneOp& op) {
  return op.kind == schedule::Kind::send && !op.is_signal() && op.after_begin == op.after_end;
}

/// True if the op may have to let others send first. A signal is short, and others wait for it.
GPUSOCK_FN inline bool sends_chunks(const LaneOp& op) { return op.out != schedule::kNobody && !op.is_signal(); }

/// True if the op lets another rank send: it takes a slot, which the op that adds what comes frees.
GPUSOCK_FN inline bool takes_slot(const Exchange& exchange, const LaneOp& op) {
  return exchange.slots != 0 && op.is_signal() && op.out != schedule::kNobody;
}
GPUSOCK_FN inline bool frees_slot(const Exchange& exchange, const LaneOp& op) {
  return exchange.slots != 0 && op.kind == schedule::Kind::recv_reduce;
}

/// True if the exchange has something to send now. One thread.
__device__ inline bool wants_to_send(const Exchange& exchange) {
  // relaxed, all: nothing is read on the strength of these words
  const std::uint64_t led = DeviceWord(exchange.words->led).load(cuda::memory_order_relaxed);
  const std::uint64_t ready = DeviceWord(exchange.words->ready).load(cuda::memory_order_relaxed);
  if (ready / exchange.ready_per_step * exchange.leading > led) return true;
  return DeviceWord(exchange.words->sending).load(cuda::memory_order_relaxed) != 0;
}

/// What a lane has done in all steps.
struct LaneCounts {
  std::uint64_t position = 0;  ///< ops
  std::uint64_t traced = 0;    ///< entries of its trace
};

/// What a resident lane does between its ops in a step.
class StepOfLane {
 public:
  __device__ StepOfLane(const Exchange* exchanges, int index, const Exchange& own, int lane, std::uint64_t step,
                        LaneCounts& counts)
      : exchanges_(exchanges), index_(index), own_(own), lane_(lane), step_(step), counts_(counts) {
    const LaneOps ops = own.run.lanes[lane];
    leading_ = ops.begin != ops.end && leads(own.run.ops[ops.begin]);
  }

  /// Sends wait while an exchange before this one has something to send. Block-collective. The first exchange waits for
  /// none; what it sends is received in the end, since lanes that receive wait for no other exchange. So do the others'
  /// turns come.
  __device__ bool before_op(const LaneOp& op) {
    if (leading_ && !leads(op)) end_leading();
    if (sends_chunks(op) && own_.gives_way && !give_way()) return false;
    if (takes_slot(own_, op) && !take_slot()) return false;
    if (threadIdx.x != 0) return true;
    if (sends_chunks(op) && !leading_) {
      DeviceWord(own_.words->sending).fetch_add(1, cuda::memory_order_relaxed);  // relaxed: see wants_to_send()
    }
    begin();
    return true;
  }

  __device__ void after_op(const LaneOp& op, int index, std::uint64_t pass, std::uint64_t words) {
    if (threadIdx.x != 0) return;
    if (sends_chunks(op) && !leading_) {
      // relaxed: see wants_to_send()
      DeviceWord(own_.words->sending).fetch_add(kMinusOne, cuda::memory_order_relaxed);
    }
    traffic_.add(op, words, is_written(own_.run, lane_, index, pass));
    trace(index, pass);
    // relaxed: see take_slot(). After trace(): what takes the slot begins later than this op has ended.
    if (frees_slot(own_, op)) DeviceWord(*own_.slots_taken).fetch_add(kMinusOne, cuda::memory_order_relaxed);
    // relaxed: it is only told
    SystemWord(own_.positions[blockIdx.x]).store(++counts_.position, cuda::memory_order_relaxed);
  }

  /// What the lane does now has begun. One thread.
  __device__ void begin() {
    if (step_ < own_.traced_steps) begin_ns_ = gpusock::clock_ns();
  }
  /// It has ended.
  __device__ void trace(int index, std::uint64_t pass) {
    if (step_ >= own_.traced_steps) return;
    own_.trace[blockIdx.x * own_.trace_of_block + counts_.traced++] = {
        begin_ns_, gpusock::clock_ns(), step_, static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(pass)};
  }

  /// After the last op.
  __device__ void end() {
    if (leading_) end_leading();
  }
  __device__ const Traffic& traffic() const { return traffic_; }

 private:
  __device__ void end_leading() {
    leading_ = false;
    // relaxed: see wants_to_send()
    if (threadIdx.x == 0) DeviceWord(own_.words->led).fetch_add(1, cuda::memory_order_relaxed);
  }

  __device__ bool give_way() const {
    int before = 0;
    const auto all_have_sent = [&] {
      while (before < index_ && !wants_to_send(exchanges_[before])) ++before;
      return before == index_;
    };
    return block_awaits(all_have_sent, [&] { return has_failed(own_.run); });
  }

  /// Waits for a slot. Exchanges before this one get theirs first. It ends: who has a slot waits for no other slot,
  /// since what it sends has a lane of its own, and is taken by a lane that gives way to none.
  __device__ bool take_slot() const {
    bool taken = false;
    if (threadIdx.x == 0) {
      // relaxed, all: they count, and guard no data
      const DeviceWord wanted(own_.words->slot_wanted);
      wanted.store(1, cuda::memory_order_relaxed);
      taken = await([&] { return try_take_slot(); }, [&] { return has_failed(own_.run); });
      wanted.store(0, cuda::memory_order_relaxed);
    } else {
      taken = true;
    }
    return __syncthreads_and(taken) != 0;
  }

  __device__ bool try_take_slot() const {
    for (int before = 0; own_.gives_way && before < index_; ++before) {
      // relaxed, all: see take_slot()
      if (DeviceWord(exchanges_[before].words->slot_wanted).load(cuda::memory_order_relaxed) != 0) return false;
    }
    const DeviceWord taken(*own_.slots_taken);
    std::uint64_t count = taken.load(cuda::memory_order_relaxed);
    while (count < own_.slots) {
      if (taken.compare_exchange_weak(count, count + 1, cuda::memory_order_relaxed, cuda::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

  static constexpr std::uint64_t kMinusOne = ~std::uint64_t{0};

  const Exchange* exchanges_;
  int index_;
  const Exchange& own_;
  int lane_;
  std::uint64_t step_;
  LaneCounts& counts_;
  bool leading_ = false;  ///< it has done nothing yet but such sends
  std::uint64_t begin_ns_ = 0;
  Traffic traffic_;
};

/// This lane's share of the sums become weights, when all lanes have ended. Block-collective.
__device__ inline bool apply_share(const Exchange& exchange, int lane, StepOfLane& of_lane) {
  const Run& run = exchange.run;
  const auto deadline = Deadlines::after_ns(run.timeout_ns).lanes;
  if (!await_pass(run, run.cut.passes() - 1, deadline)) return false;
  if (threadIdx.x == 0) of_lane.begin();
  apply_floats(run, share_of({0, run.cut.floats}, run, lane));
  __syncthreads();  // the whole block's writes come before its first thread's L11
  if (threadIdx.x == 0) of_lane.trace(run.lanes[lane].end - run.lanes[lane].begin, 0);
  return true;
}

/// Runs a lane of one of `count` exchanges, until all steps are done or the run has failed. Block-collective.
__device__ inline void run_steps(const Exchange* exchanges, int index, int count, Exchange& exchange,
                                 LaneSockets& sockets, std::uint64_t steps, ExchangeTimes& times) {
  const int lane = static_cast<int>(blockIdx.x) - exchange.first_block;
  LaneCounts counts;
  for (std::uint64_t step = 0; step < steps; ++step) {
    exchange.run.number = step + 1;
    if (!offer_places(exchange.run, sockets, *exchange.words, lane)) return;
    if (!await_gradients(exchange, step)) return;
    StepOfLane of_lane(exchanges, index, exchange, lane, step, counts);
    const auto deadlines = [&] { return Deadlines::after_ns(exchange.run.timeout_ns); };
    if (!run_lane(exchange.run, lane, sockets, deadlines, of_lane)) return;
    of_lane.end();
    if (exchange.all_apply && !apply_share(exchange, lane, of_lane)) return;
    __syncthreads();  // the whole block's writes come before its first thread's L11
    if (threadIdx.x != 0) continue;
    of_lane.traffic().count(*exchange.words);
    end_step(exchange, step, times, count);
  }
}

/// Resident. One block is one lane of one exchange; all of them run side by side.
static __global__ void run_exchanges(const Exchange* exchanges, int count, std::uint64_t steps, ExchangeTimes* times) {
  const int block = static_cast<int>(blockIdx.x);
  int index = 0;
  while (block >= exchanges[index].first_block + exchanges[index].run.lane_count) ++index;
  Exchange exchange = exchanges[index];  // by value: each block counts its runs
  LaneSockets sockets(exchange.run);
  run_steps(exchanges, index, count, exchange, sockets, steps, *times);
  sockets.release();
}

}  // namespace param_sync::executor
