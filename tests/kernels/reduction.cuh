#pragma once
/// @file Sum of an array: warp shuffles, then one value per warp through shared memory, then one atomic per block.

#include "tests/support/run_kernel.hpp"

namespace gpusock::test {

__device__ inline unsigned warp_sum(unsigned value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
  return value;
}

/// Adds the sum of `in` to `*out`. Any number of blocks, of whole warps each.
__global__ void reduce_sum(const unsigned* in, unsigned count, unsigned* out) {
  __shared__ unsigned warp_sums[32];
  unsigned sum = 0;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) sum += in[i];

  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  sum = warp_sum(sum);
  if (lane == 0) warp_sums[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    sum = warp_sum(lane < blockDim.x / 32 ? warp_sums[lane] : 0);
    if (lane == 0) atomicAdd(out, sum);
  }
}

}  // namespace gpusock::test
