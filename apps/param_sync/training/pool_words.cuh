#pragma once
/// @file The words through which the kernels of a step and the stager (pool_steps.cuh) share a pool of device memory.
///
/// The words only grow. A stay (PoolStay) begins once in each step.
///   label  operation        order    partner  data protected
///   O1     opened.store     release  O2       the weights in the pool; or that nothing else uses the gradients' memory
///   O2     opened.load      acquire  O1       the same, before a kernel reads the weights or writes the gradients
///   O3     ended.fetch_add  release  O4       that a block has read the weights, or pushed its part of the gradients
///   O4     ended.load       acquire  O3       the same, before the stager copies weights there, or does O1
/// The stager reads a version of the weights when it is there (L13 of exchange_words.cuh), and before the next one
/// comes: it has copied a layer's weights (O1, O2) before a kernel that uses them hands over gradients (L9), and pulls
/// come after that.

#include "param_sync/executor/wait.cuh"

#include <cstdint>

namespace param_sync {

/// What the stager did in a step, and how long the step's kernels waited for it. In mapped memory.
struct StepStaging {
  std::uint64_t bytes;       ///< the stager writes it
  std::uint64_t copying_ns;  ///< likewise
  std::uint64_t stalled_ns;  ///< the kernels' blocks 0 write it
};

/// Opens one more stay. One thread, after a barrier.
__device__ inline void open_stay(std::uint64_t& opened, std::uint64_t number) {
  executor::DeviceWord(opened).store(number, cuda::memory_order_release);  // O1, pairs with O2
}

/// True if so many stays have begun in all steps. One thread.
__device__ inline bool has_opened(std::uint64_t& opened, std::uint64_t number) {
  return executor::DeviceWord(opened).load(cuda::memory_order_acquire) >= number;  // O2, pairs with O1
}

/// Counts that a block does not use a stay's memory any more. One thread, after a barrier.
__device__ inline void note_end(std::uint64_t& ended) {
  executor::DeviceWord(ended).fetch_add(1, cuda::memory_order_release);  // O3, pairs with O4
}

/// True if so many blocks have used a stay's memory, in all steps. One thread.
__device__ inline bool has_ends(std::uint64_t& ended, std::uint64_t uses) {
  return executor::DeviceWord(ended).load(cuda::memory_order_acquire) >= uses;  // O4, pairs with O3
}

}  // namespace param_sync
