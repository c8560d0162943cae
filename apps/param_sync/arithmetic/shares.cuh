#pragma once
/// @file Divides parameters among the threads of a kernel.

#include "gpusock/device.cuh"

#include <cstdint>

namespace param_sync {

/// Calls `call` with each of this thread's share of the numbers from 0 to `count` - 1. On a GPU neighbouring threads
/// have neighbouring numbers. On a CPU a share is contiguous, so that the compiler can handle several at once.
template <class Call>
__device__ inline void for_share(std::uint32_t count, Call call) {
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
#if GPUSOCK_ON_GPU
  for (std::uint32_t i = thread; i < count; i += threads) call(i);
#else
  const auto border = [&](std::uint32_t of) { return static_cast<std::uint32_t>(std::uint64_t{count} * of / threads); };
  for (std::uint32_t i = border(thread), end = border(thread + 1); i < end; ++i) call(i);
#endif
}

}  // namespace param_sync
