#pragma once
/// @file Inclusive prefix sum: within warps by shuffles, over warps through shared memory, over blocks in three
/// kernels.

#include "tests/support/run_kernel.hpp"

namespace gpusock::test {

__device__ inline unsigned warp_scan(unsigned value) {
  for (unsigned offset = 1; offset < 32; offset *= 2) {
    const unsigned below = __shfl_up_sync(0xffffffffu, value, offset);
    if (threadIdx.x % 32 >= offset) value += below;
  }
  return value;
}

/// Each block scans its own part of `values`, of one element a thread, and leaves its total. Blocks of whole warps.
__global__ void scan_blocks(unsigned* values, unsigned count, unsigned* totals) {
  __shared__ unsigned warp_totals[32];
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned sum = warp_scan(i < count ? values[i] : 0);
  if (lane == 31) warp_totals[warp] = sum;
  __syncthreads();
  if (warp == 0) warp_totals[lane] = warp_scan(lane < blockDim.x / 32 ? warp_totals[lane] : 0);
  __syncthreads();
  if (warp > 0) sum += warp_totals[warp - 1];
  if (i < count) values[i] = sum;
  if (threadIdx.x == blockDim.x - 1) totals[blockIdx.x] = sum;
}

/// Adds to each block's part the scanned totals of the blocks before it.
__global__ void add_totals(unsigned* values, unsigned count, const unsigned* totals) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (blockIdx.x > 0 && i < count) values[i] += totals[blockIdx.x - 1];
}

}  // namespace gpusock::test
