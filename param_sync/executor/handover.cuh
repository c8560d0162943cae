#pragma once
/// @file What resident lanes and the kernels that compute share: their words (param_sync/executor/exchange_words.cuh),
/// and times.

#include "param_sync/executor/exchange_words.cuh"
#include "param_sync/executor/wait.cuh"

#include <cstdint>

namespace param_sync::executor {

/// Times by the device's clock. The communication of a step lasts from when its first gradients may be sent until its
/// last weights are there. The part of it in which no kernel computes is exposed; the rest is hidden.
/// relaxed, all words: a step's first gradients are ready before its last weights are there, and those before the next
/// step's gradients; what comes between is ordered by L9 to L13. Kernels that compute follow each other on a stream.
/// Blocks of one may see each other's times late: then a pause is counted longer by as much, and nothing else is wrong.
struct ExchangeTimes {
  std::uint64_t first_ready_ns;     ///< when the first gradients were ready of the steps that are exchanged now
  std::uint64_t exchanging;         ///< how many steps' gradients are exchanged now
  std::uint64_t communicating_ns;   ///< communication of all steps
  std::uint64_t versions;           ///< how many versions were published
  std::uint64_t ended_ns;           ///< when the weights of the last complete step were there
  std::uint64_t computed_until_ns;  ///< when the last block ended computing
  std::uint64_t computing;          ///< how many blocks compute, of kernels that wait
  std::uint64_t exposed_ns;         ///< exposed time of all steps
};

/// Notes that a step's first gradients may be sent from now on. Where steps overlap, one begins for all of them. One
/// thread.
GPUSOCK_FN inline void begin_communication(ExchangeTimes& times, std::uint64_t now_ns) {
  if (DeviceWord(times.exchanging).fetch_add(1, cuda::memory_order_relaxed) != 0) return;
  DeviceWord(times.first_ready_ns).store(now_ns, cuda::memory_order_relaxed);
}

/// Notes that the step's last weights are there. Where steps overlap, the last one ends for all of them. One thread.
GPUSOCK_FN inline void end_communication(ExchangeTimes& times, std::uint64_t now_ns) {
  const DeviceWord exchanging(times.exchanging);
  // Before the step is counted off: then another one may begin.
  const std::uint64_t start_ns = DeviceWord(times.first_ready_ns).load(cuda::memory_order_relaxed);
  const bool told = exchanging.load(cuda::memory_order_relaxed) != 0;  // else no kernel tells when a step begins
  if (told && exchanging.fetch_add(~std::uint64_t{0}, cuda::memory_order_relaxed) != 1) return;
  DeviceWord(times.communicating_ns).fetch_add(now_ns - start_ns, cuda::memory_order_relaxed);
  DeviceWord(times.ended_ns).store(now_ns, cuda::memory_order_relaxed);
}

/// Notes that a block has waited for its data, and computes from now on. If no other block computes, communication was
/// exposed since the last block ended computing. One thread of each block.
GPUSOCK_FN inline void begin_compute(ExchangeTimes& times, std::uint64_t now_ns) {
  if (DeviceWord(times.computing).fetch_add(1, cuda::memory_order_relaxed) != 0) return;
  const std::uint64_t start_ns = DeviceWord(times.first_ready_ns).load(cuda::memory_order_relaxed);
  const std::uint64_t ended_ns = DeviceWord(times.ended_ns).load(cuda::memory_order_relaxed);
  const std::uint64_t computed_ns = DeviceWord(times.computed_until_ns).load(cuda::memory_order_relaxed);
  const std::uint64_t from_ns = start_ns > computed_ns ? start_ns : computed_ns;
  const bool goes_on = ended_ns < start_ns;
  const std::uint64_t until_ns = goes_on || now_ns < ended_ns ? now_ns : ended_ns;
  if (until_ns > from_ns) DeviceWord(times.exposed_ns).fetch_add(until_ns - from_ns, cuda::memory_order_relaxed);
}

/// Notes that a block has computed whose kernel does not wait: there was no pause since the kernel before it. One
/// thread of each block.
GPUSOCK_FN inline void has_computed(ExchangeTimes& times, std::uint64_t now_ns) {
  DeviceWord(times.computed_until_ns).store(now_ns, cuda::memory_order_relaxed);
}

/// Notes that a block that called begin_compute() has computed. One thread of each block.
GPUSOCK_FN inline void end_compute(ExchangeTimes& times, std::uint64_t now_ns) {
  has_computed(times, now_ns);
  DeviceWord(times.computing).fetch_add(~std::uint64_t{0}, cuda::memory_order_relaxed);  // one less
}

/// Counts that one of a tensor's `lanes` has ended a step. The last lane publishes the version. `tensors`: how many
/// tensors are exchanged in a step. One thread calls it, after a barrier.
__device__ inline void end_step(ExchangeWords& words, std::uint64_t lanes, std::uint64_t step, ExchangeTimes& times,
                                int tensors) {
  const DeviceWord ended(words.lanes_ended);
  if (ended.fetch_add(1, cuda::memory_order_acq_rel) + 1 != lanes * (step + 1)) return;  // L11
  // relaxed: as all of ExchangeTimes
  const std::uint64_t versions = DeviceWord(times.versions).fetch_add(1, cuda::memory_order_relaxed) + 1;
  if (versions % static_cast<std::uint64_t>(tensors) == 0) end_communication(times, gpusock::clock_ns());
  DeviceWord(words.version).store(step + 1, cuda::memory_order_release);  // L12, pairs with L13
}

}  // namespace param_sync::executor
