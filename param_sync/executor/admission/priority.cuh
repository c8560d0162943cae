#pragma once
/// @file Sends of an exchange wait while an exchange before it has something to send. So the layers whose weights are
/// needed first are exchanged first. (Jayarajan et al., "Priority-based Parameter Propagation for Distributed DNN
/// Training", MLSys 2019.)

#include "param_sync/executor/admission/asking.cuh"

namespace param_sync::executor::admission {

/// True if the exchange has something to send now. One thread.
__device__ inline bool wants_to_send(const executor::Exchange& exchange) {
  // relaxed, all: nothing is read on the strength of these words
  const std::uint64_t led = DeviceWord(exchange.words->led).load(cuda::memory_order_relaxed);
  const std::uint64_t ready = DeviceWord(exchange.words->ready).load(cuda::memory_order_relaxed);
  if (ready / exchange.ready_per_step * exchange.leading > led) return true;
  return DeviceWord(exchange.words->sending).load(cuda::memory_order_relaxed) != 0;
}

class Priority {
 public:
  __device__ explicit Priority(const Asking& asking) : asking_(asking) {
    const executor::LaneOps ops = asking.own.run.lanes[asking.lane];
    leading_ = ops.begin != ops.end && leads(asking.own.run.ops[ops.begin]);
  }

  /// The wait always ends. The first exchange waits for no other one. What it sends is received in the end, since lanes
  /// that receive wait for no other exchange. So the turn of each later exchange comes.
  __device__ bool before_op(const executor::LaneOp& op) {
    if (leading_ && !leads(op)) end();
    if (!sends_chunks(op)) return true;
    if (asking_.own.gives_way && !give_way()) return false;
    if (!leading_) count_sending(1);
    return true;
  }
  __device__ void after_op(const executor::LaneOp& op) const {
    if (sends_chunks(op) && !leading_) count_sending(kMinusOne);
  }
  __device__ void end() {
    if (!leading_) return;
    leading_ = false;
    // relaxed: see wants_to_send()
    if (threadIdx.x == 0) DeviceWord(asking_.own.words->led).fetch_add(1, cuda::memory_order_relaxed);
  }

 private:
  __device__ void count_sending(std::uint64_t more) const {
    // relaxed: see wants_to_send()
    if (threadIdx.x == 0) DeviceWord(asking_.own.words->sending).fetch_add(more, cuda::memory_order_relaxed);
  }

  __device__ bool give_way() const {
    int before = 0;
    const auto all_have_sent = [&] {
      while (before < asking_.index && !wants_to_send(asking_.exchanges[before])) ++before;
      return before == asking_.index;
    };
    return block_awaits(all_have_sent, [&] { return has_failed(asking_.own.run); });
  }

  Asking asking_;
  bool leading_ = false;  ///< true while the lane has done only sends for which leads() is true
};

}  // namespace param_sync::executor::admission
