#pragma once
/// @file Histogram: each block counts in dynamic shared memory with atomics, then adds its counts to the global ones.

#include "tests/support/run_kernel.hpp"

namespace gpusock::test {

/// Adds to `counts[v % bins]` one for each value v. `bins` unsigned of dynamic shared memory.
__global__ void count_values(const unsigned* values, unsigned count, unsigned* counts, unsigned bins) {
  unsigned* local = dynamic_shared<unsigned>();
  for (unsigned bin = threadIdx.x; bin < bins; bin += blockDim.x) local[bin] = 0;
  __syncthreads();
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    atomicAdd(&local[values[i] % bins], 1u);
  }
  __syncthreads();
  for (unsigned bin = threadIdx.x; bin < bins; bin += blockDim.x) {
    if (local[bin] != 0) atomicAdd(&counts[bin], local[bin]);
  }
}

}  // namespace gpusock::test
