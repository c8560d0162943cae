#pragma once
/// @file The words through which kernels that compute and resident lanes (executor/resident.cuh) synchronize.
///
/// Words in this table only grow. After step t, `version` is t + 1, and a counter is t + 1 times what a step adds.
///   label  operation               order    partner  data protected
///   L9     ready.fetch_add         release  L10      gradients; and all that read the weights have done so
///   L10    ready.load              acquire  L9       the same, before lanes send gradients and receive weights
///   L11    lanes_ended.fetch_add   acq_rel  L11      the lanes' weights, for the last lane to publish
///   L12    version.store           release  L13      the weights; and no lane reads the gradients any more
///   L13    version.load            acquire  L12      the same, before forward kernels read and backward kernels write

#include "param_sync/executor/wait.cuh"

#include <cstdint>

namespace param_sync::executor {

/// A tensor's words; in device memory.
struct ExchangeWords {
  std::uint64_t ready;          ///< counts blocks that have written their part of a step's gradients
  std::uint64_t lanes_ended;    ///< counts lanes that have ended a step
  std::uint64_t version;        ///< number of steps whose weights are there
  std::uint64_t led;            ///< counts lanes that have done the sends with which they begin a step
  std::uint64_t sending;        ///< number of lanes that do a later send now: this word also shrinks
  std::uint64_t credit_wanted;  ///< 1 while a lane waits for a credit, else 0
  // Bytes of messages, headers included. They are read when all kernels have ended.
  std::uint64_t pushed_bytes;     ///< gradients, and sums of them, that were sent
  std::uint64_t gathered_bytes;   ///< gradients, and sums of them, that were received
  std::uint64_t published_bytes;  ///< weights that were sent
  std::uint64_t pulled_bytes;     ///< weights that were received
  std::uint64_t in_place_bytes;   ///< the part of pushed_bytes that kernels have written into rings, without a copy
};

/// Hands over the part of a tensor's gradients that the calling block has written. One thread calls it, after a
/// barrier. Returns how many calls came before this one, from all blocks.
__device__ inline std::uint64_t hand_over(ExchangeWords& words) {
  return DeviceWord(words.ready).fetch_add(1, cuda::memory_order_release);  // L9, pairs with L10
}

/// True if so many blocks have written their gradients, in all steps together. One thread.
__device__ inline bool has_gradients(ExchangeWords& words, std::uint64_t blocks) {
  return DeviceWord(words.ready).load(cuda::memory_order_acquire) >= blocks;  // L10, pairs with L9
}

/// True if the weights of `steps` steps are there. One thread.
__device__ inline bool has_version(ExchangeWords& words, std::uint64_t steps) {
  return DeviceWord(words.version).load(cuda::memory_order_acquire) >= steps;  // L13, pairs with L12
}

/// True if the host has set `stop`, which is in mapped memory, or null. One thread.
__device__ inline bool is_stopped(std::uint64_t* stop) {
  // relaxed: it only ends waits
  return stop != nullptr && SystemWord(*stop).load(cuda::memory_order_relaxed) != 0;
}

/// True if a kernel has failed, or the host has set `stop`. One thread.
__device__ inline bool has_ended(std::uint64_t& failed, std::uint64_t* stop) {
  if (DeviceWord(failed).load(cuda::memory_order_relaxed) != 0) return true;  // F1
  return is_stopped(stop);
}

}  // namespace param_sync::executor
