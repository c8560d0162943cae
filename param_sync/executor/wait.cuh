#pragma once
/// @file How kernels wait for words in memory: the kinds of words, and the pauses between two looks at one.

#include "gpusock/device.cuh"

#include <cuda/atomic>

#include <cstdint>

namespace param_sync::executor {

/// A word that kernels of one device share.
using DeviceWord = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_device>;
/// A word that kernels share with the host.
using SystemWord = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>;

/// The deadline of a kernel's call that waits several times: a minute from now if none is given.
__device__ inline gpusock::Deadline begun(gpusock::Deadline deadline) {
  constexpr std::uint64_t kDefaultMs = 60'000;
  return deadline.is_default() ? gpusock::Deadline::after_ms(kDefaultMs) : deadline.here();
}

/// Pauses between two looks at a word. Each is twice as long as the one before, up to a limit, so that a long wait
/// leaves the processor to other work.
class Backoff {
 public:
  /// The first pause, and the longest one.
  __device__ explicit Backoff(unsigned first_ns = 100, unsigned most_ns = 20'000)
      : pause_ns_(first_ns), most_ns_(most_ns) {}

  /// Pauses.
  __device__ void pause() {
    __nanosleep(pause_ns_);
    pause_ns_ = min(2 * pause_ns_, most_ns_);
  }

 private:
  unsigned pause_ns_;
  unsigned most_ns_;
};

/// Waits until `reached()`. False if `ended()`, which it calls after each look, is true before that. One thread.
template <class Reached, class Ended>
__device__ inline bool await(Reached reached, Ended ended) {
  Backoff backoff;
  while (!reached()) {
    if (ended()) return false;
    backoff.pause();
  }
  return true;
}

/// As await(), for a block whose first thread looks. Block-collective.
template <class Reached, class Ended>
__device__ inline bool block_awaits(Reached reached, Ended ended) {
  return __syncthreads_and(threadIdx.x != 0 || await(reached, ended)) != 0;
}

}  // namespace param_sync::executor
