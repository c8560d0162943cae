#pragma once
/// @file A kernel copies the contents of a checkpoint to memory that the host reads. The node's other kernels run on.

#include "gpusock/device.cuh"

#include <cstddef>

namespace param_sync {

/// Copies weights, or what the update keeps of them, to mapped memory. Launched on the stream after wait_for_weights:
/// from there until the next step's gradients are pushed, no kernel changes them.
[[maybe_unused]] static __global__ void copy_floats(const float* from, std::size_t count, float* to) {
  const std::size_t first = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x,
                    stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = first; i < count; i += stride) to[i] = from[i];
}

}  // namespace param_sync
