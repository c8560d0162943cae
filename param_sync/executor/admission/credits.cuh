#pragma once
/// @file An owner lets only as many ranks send to it at the same time as it has credits, for all exchanges together.
/// (Receiver-driven credits against incast, as by pHost: Gao et al., 2015.)

#include "param_sync/executor/admission/asking.cuh"

namespace param_sync::executor::admission {

/// An op that lets another rank send takes a credit, and the op that adds what that rank sends frees it.
class Credits {
 public:
  __device__ explicit Credits(const Asking& asking) : asking_(asking) {}

  __device__ bool before_op(const executor::LaneOp& op) const {
    const bool takes = asking_.own.credits != 0 && op.is_signal() && op.out != schedule::kNobody;
    return !takes || take();
  }
  __device__ void after_op(const executor::LaneOp& op) const {
    const bool frees = asking_.own.credits != 0 && op.kind == schedule::Kind::recv_reduce;
    // relaxed: see take()
    if (frees && threadIdx.x == 0) {
      DeviceWord(*asking_.own.credits_taken).fetch_add(kMinusOne, cuda::memory_order_relaxed);
    }
  }
  __device__ void end() const {}

 private:
  /// Waits for a credit. Exchanges before this one get theirs first. The wait ends: a rank that may send waits for no
  /// other credit, its messages have a lane of their own, and the lane that adds them gives way to no other.
  __device__ bool take() const {
    bool taken = true;
    if (threadIdx.x == 0) {
      // relaxed, all: they count, and guard no data
      const DeviceWord wanted(asking_.own.words->credit_wanted);
      wanted.store(1, cuda::memory_order_relaxed);
      taken = await([&] { return try_take(); }, [&] { return has_failed(asking_.own.run); });
      wanted.store(0, cuda::memory_order_relaxed);
    }
    return __syncthreads_and(taken) != 0;
  }

  __device__ bool try_take() const {
    for (int before = 0; asking_.own.gives_way && before < asking_.index; ++before) {
      // relaxed, all: see take()
      if (DeviceWord(asking_.exchanges[before].words->credit_wanted).load(cuda::memory_order_relaxed) != 0)
        return false;
    }
    const DeviceWord taken(*asking_.own.credits_taken);
    std::uint64_t count = taken.load(cuda::memory_order_relaxed);
    while (count < asking_.own.credits) {
      if (taken.compare_exchange_weak(count, count + 1, cuda::memory_order_relaxed, cuda::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

  Asking asking_;
};

}  // namespace param_sync::executor::admission
