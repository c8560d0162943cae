#pragma once
/// @file A kernel copies the contents of a checkpoint to memory that the host reads. The node's other kernels run on.

#include "gpusock/device.cuh"

#include <cstddef>

namespace param_sync {

[[maybe_unused]] static __global__ void copy_floats(const float* from, std::size_t count, float* to) {
  const std::size_t first = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x,
                    stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = first; i < count; i += stride) to[i] = from[i];
}

/// Copies the weights, then the update's states, to `image` in mapped memory. Launched on the stream after
/// wait_for_weights: from there until the next step's gradients are pushed, no kernel changes weights or states.
[[maybe_unused]] static __global__ void copy_state(const float* weights, std::size_t weight_count, const float* states,
                                                   std::size_t state_count, float* image) {
  const std::size_t first = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x,
                    stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = first; i < weight_count; i += stride) image[i] = weights[i];
  for (std::size_t i = first; i < state_count; i += stride) image[weight_count + i] = states[i];
}

}  // namespace param_sync
