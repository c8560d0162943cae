#pragma once
/// @file How the threads of a block share floats.

#include "gpusock/device.cuh"

#include <cstdint>

namespace param_sync {

/// Calls with the numbers of this thread's share of `count` floats. On a GPU neighbours are of neighbouring threads; on
/// a CPU each thread has neighbours, so that the compiler can add several at a time.
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
