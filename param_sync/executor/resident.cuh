#pragma once
/// @file Lanes that stay for a whole training. param_sync/executor/exchange_words.cuh has the words by which they
/// and other kernels meet.

#include "param_sync/executor/exchange.cuh"
#include "param_sync/executor/handover.cuh"
#include "param_sync/executor/lane.cuh"

namespace param_sync::executor {

/// The block waits for the gradients of a step. There is no deadline: other kernels compute them. Block-collective.
__device__ inline bool await_gradients(const Exchange& exchange, std::uint64_t step) {
  return block_awaits([&] { return has_gradients(*exchange.words, exchange.ready_per_step * (step + 1)); },
                      [&] { return has_failed(exchange.run); });
}

/// What a lane has sent and received in a step. One thread.
struct Traffic {
  std::uint64_t sent[2] = {};  ///< gradients, weights
  std::uint64_t received[2] = {};
  std::uint64_t in_place = 0;

  /// Counts a message. `written`: kernels have written it into the ring.
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

/// How much a lane has done in all steps.
struct LaneCounts {
  std::uint64_t position = 0;  ///< completed ops
  std::uint64_t traced = 0;    ///< entries in its trace
};

/// What a resident lane does between its ops in a step: it asks for admission, counts, and traces.
template <class Admission>
class StepOfLane {
 public:
  __device__ StepOfLane(const admission::Asking& asking, std::uint64_t step, LaneCounts& counts)
      : admission_(asking), own_(asking.own), lane_(asking.lane), step_(step), counts_(counts) {}

  __device__ bool before_op(const LaneOp& op) {
    if (!admission_.before_op(op)) return false;
    if (threadIdx.x == 0) begin();
    return true;
  }

  __device__ void after_op(const LaneOp& op, int index, std::uint64_t pass, std::uint64_t words) {
    if (threadIdx.x == 0) {
      traffic_.add(op, words, is_written(own_.run, lane_, index, pass));
      trace(index, pass);
    }
    admission_.after_op(op);  // after trace(), so that an op that it admits begins after this op's end
    if (threadIdx.x != 0) return;
    // relaxed: it is only told
    SystemWord(own_.positions[blockIdx.x]).store(++counts_.position, cuda::memory_order_relaxed);
  }

  /// Notes that what the lane does now has begun. One thread.
  __device__ void begin() {
    if (step_ < own_.traced_steps) begin_ns_ = gpusock::clock_ns();
  }
  /// Notes that it has ended. One thread.
  __device__ void trace(int index, std::uint64_t pass) {
    if (step_ >= own_.traced_steps) return;
    own_.trace[blockIdx.x * own_.trace_of_block + counts_.traced++] = {
        begin_ns_, gpusock::clock_ns(), step_, static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(pass)};
  }

  /// Call it after the last op.
  __device__ void end() { admission_.end(); }
  __device__ const Traffic& traffic() const { return traffic_; }

 private:
  Admission admission_;
  const Exchange& own_;
  int lane_;
  std::uint64_t step_;
  LaneCounts& counts_;
  std::uint64_t begin_ns_ = 0;
  Traffic traffic_;
};

/// Makes weights of this lane's share of the sums, when all lanes have ended. Block-collective.
template <class P>
__device__ inline bool apply_share(const Exchange& exchange, const P& policies, int lane,
                                   StepOfLane<typename P::Admission>& of_lane) {
  const Run& run = exchange.run;
  const auto deadline = Deadlines::after_ns(run.timeout_ns).lanes;
  if (!await_pass(run, run.cut.passes() - 1, deadline)) return false;
  if (threadIdx.x == 0) of_lane.begin();
  apply_floats(run, policies, share_of({0, run.cut.floats}, run, lane));
  __syncthreads();  // the whole block's writes come before its first thread's L11
  if (threadIdx.x == 0) of_lane.trace(run.lanes[lane].end - run.lanes[lane].begin, 0);
  return true;
}

/// Runs a lane of one of `count` exchanges, until all steps are done or the run has failed. Block-collective.
template <class P>
__device__ inline void run_steps(const Exchange* exchanges, int index, int count, Exchange& exchange, const P& policies,
                                 LaneSockets& sockets, std::uint64_t steps, ExchangeTimes& times) {
  const int lane = static_cast<int>(blockIdx.x) - exchange.first_block;
  LaneCounts counts;
  for (std::uint64_t step = 0; step < steps; ++step) {
    exchange.run.number = step + 1;
    if (!reserve_in_place(exchange.run, sockets, *exchange.words, lane)) return;
    if (!await_gradients(exchange, step)) return;
    StepOfLane<typename P::Admission> of_lane({exchanges, index, exchange, lane}, step, counts);
    const auto deadlines = [&] { return Deadlines::after_ns(exchange.run.timeout_ns); };
    if (!run_lane(exchange.run, policies, lane, sockets, deadlines, of_lane)) return;
    of_lane.end();
    if (exchange.all_apply && !apply_share(exchange, policies, lane, of_lane)) return;
    __syncthreads();  // the whole block's writes come before its first thread's L11
    if (threadIdx.x != 0) continue;
    of_lane.traffic().count(*exchange.words);
    end_step(*exchange.words, static_cast<std::uint64_t>(exchange.run.lane_count), step, times, count);
  }
}

/// Runs before the first step, with a block for each exchange.
template <class P>
static __global__ void begin_codecs(const Exchange* exchanges, const P* policies) {
  const Run& run = exchanges[blockIdx.x].run;
  policies[blockIdx.x].codec.begin(run.apply.weights, run.cut.floats);
}

/// A resident kernel. Each block is one lane of one exchange; all of them run side by side. `policies`: by exchange.
template <class P>
static __global__ void run_exchanges(const Exchange* exchanges, const P* policies, int count, std::uint64_t steps,
                                     ExchangeTimes* times) {
  const int block = static_cast<int>(blockIdx.x);
  int index = 0;
  while (block >= exchanges[index].first_block + exchanges[index].run.lane_count) ++index;
  Exchange exchange = exchanges[index];  // a copy: each block counts its runs
  const P own = policies[index];
  LaneSockets sockets(exchange.run);
  run_steps(exchanges, index, count, exchange, own, sockets, steps, *times);
  sockets.release();
}

}  // namespace param_sync::executor
