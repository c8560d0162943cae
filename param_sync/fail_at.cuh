#pragma once
/// @file What kernels call at points where their process may be told to end (fail_at.hpp). For sources that are
/// compiled for the device.

#include "param_sync/fail_at.hpp"

#include "gpusock/device.cuh"

#include <cuda/atomic>

#include <cstdint>

namespace param_sync {

/// Ends the process, if `handle` says so for this step and phase: the group's threads stay here until the host has
/// killed it. A group of threads calls it, as socket calls are made.
template <class Group>
__device__ inline void fail_at(const Group& group, const FailHandle& handle, std::uint64_t step, std::uint32_t phase) {
  if (handle.reached == nullptr || handle.step != step || handle.phase != phase) return;
  if (group.thread_rank() == 0) {
    // relaxed: nothing is read after it
    cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>(*handle.reached).store(1, cuda::memory_order_relaxed);
    for (;;) __nanosleep(1'000'000);
  }
  group.sync();
}

}  // namespace param_sync
