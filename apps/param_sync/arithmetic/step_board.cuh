#pragma once
/// @file How far a run is. The host reads it while kernels go on.
///
///   label  operation            order    partner  data protected
///   S14    kernel: steps.store  release  S15      the losses of those steps
///   S15    host: steps.load     acquire  S14      as S14

#include "gpusock/types.hpp"

#include <cuda/atomic>

#include <cstdint>

namespace param_sync {

/// What the device reports to the host while it trains; in mapped memory, written by one thread.
struct StepBoard {
  using Word = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>;

  /// Publishes that the losses of so many steps are written. For the kernel; one thread.
  GPUSOCK_FN void publish(std::uint64_t count) {
    Word(steps).store(count, cuda::memory_order_release);  // S14, pairs with S15
  }
  /// Number of steps whose losses can be read. For the host.
  std::uint64_t published() {
    return Word(steps).load(cuda::memory_order_acquire);  // S15, pairs with S14
  }

  std::uint64_t steps;
};

}  // namespace param_sync
