#pragma once
/// @file How kernels hand gradients to the resident lanes that exchange them (resident.cuh), and get weights back.
///
/// All words only grow: what is complete in step t has reached t + 1, or so many times what a step adds.
///   label  operation               order    partner  data protected
///   L9     ready.fetch_add         release  L10      gradients; and all that read the weights have done so
///   L10    ready.load              acquire  L9       the same, before lanes send gradients and receive weights
///   L11    lanes_ended.fetch_add   acq_rel  L11      the lanes' weights, for the last lane to publish
///   L12    version.store           release  L13      the weights; and no lane reads the gradients any more
///   L13    version.load            acquire  L12      the same, before forward kernels read and backward kernels write

#include "executor/run.cuh"
#include "executor/traced_op.hpp"

namespace param_sync::executor {

/// A tensor's words; in device memory.
struct ExchangeWords {
  std::uint64_t ready;        ///< blocks of backward kernels that have written their part of the gradients
  std::uint64_t lanes_ended;  ///< lanes that have ended a step
  std::uint64_t version;      ///< steps whose weights are there
  std::uint64_t led;          ///< lanes that have done the sends with which they begin a step
  std::uint64_t sending;      ///< lanes that do a later send now: this word also shrinks
  std::uint64_t slot_wanted;  ///< 1 while a lane waits for a slot, else 0
  // Bytes of messages, headers included; read when all kernels have ended.
  std::uint64_t pushed_bytes;     ///< gradients, and sums of them, that were sent
  std::uint64_t gathered_bytes;   ///< gradients, and sums of them, that were received
  std::uint64_t published_bytes;  ///< weights that were sent
  std::uint64_t pulled_bytes;     ///< weights that were received
};

/// Times by the device's clock. The communication of a step lasts from when its first gradients are ready until its
/// last weights are there.
struct ExchangeTimes {
  std::uint64_t first_ready_ns;    ///< of this step
  std::uint64_t communicating_ns;  ///< all steps' communication
  std::uint64_t versions;          ///< that were published
};

/// The calling block has written its part of a tensor's gradients. After a barrier; one thread.
__device__ inline void hand_over(ExchangeWords& words) {
  DeviceWord(words.ready).fetch_add(1, cuda::memory_order_release);  // L9, pairs with L10
}

/// True if the weights of so many steps are there. One thread.
__device__ inline bool has_version(ExchangeWords& words, std::uint64_t steps) {
  return DeviceWord(words.version).load(cuda::memory_order_acquire) >= steps;  // L13, pairs with L12
}

}  // namespace param_sync::executor
