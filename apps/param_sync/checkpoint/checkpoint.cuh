#pragma once
/// @file What a checkpoint is made of, copied by a kernel to where the host reads it: the node's other kernels run on.

#include "gpusock/device.cuh"

#include <cstdint>

namespace param_sync {

/// `image`: the weights, then the velocities; in mapped memory. Launched on the stream after wait_for_weights. From
/// there until the next step's gradients are pushed, no kernel changes weights or velocities.
static __global__ void copy_state(const float* weights, const float* velocity, std::uint32_t parameters, float* image) {
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < parameters; i += gridDim.x * blockDim.x) {
    image[i] = weights[i];
    image[parameters + i] = velocity[i];
  }
}

}  // namespace param_sync
