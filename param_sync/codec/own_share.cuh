#pragma once
/// @file Divides floats among the threads of a block.

#include "gpusock/device.cuh"

#include <cstdint>

namespace param_sync {

/// Calls `call` with each index in this thread's share of `count` floats. On a GPU neighbouring threads have
/// neighbouring floats. On a CPU a share is contiguous, so that the compiler can add several floats at once.
template <class Call>
__device__ inline void for_own_share(std::uint64_t count, Call call) {
#if GPUSOCK_ON_GPU
  for (std::uint64_t i = threadIdx.x; i < count; i += blockDim.x) call(i);
#else
  const std::uint64_t end = count * (threadIdx.x + 1) / blockDim.x;
  for (std::uint64_t i = count * threadIdx.x / blockDim.x; i < end; ++i) call(i);
#endif
}

}  // namespace param_sync
