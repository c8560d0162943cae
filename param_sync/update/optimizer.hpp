#pragma once
/// @file SGD with momentum, and the one multiply-add that all of the model's sums are made of.

#include "gpusock/types.hpp"

namespace param_sync {

/// a * b + c: fused on a GPU, rounded twice on a CPU (not every x86-64 has a fused instruction).
GPUSOCK_FN inline float multiply_add(float a, float b, float c) {
#if GPUSOCK_ON_GPU
  return __fmaf_rn(a, b, c);
#else
  return a * b + c;
#endif
}

/// What a step does with the sum of a parameter's gradients.
struct Optimizer {
  float learning_rate = 0;
  float momentum = 0;
  float scale = 0;  ///< 1 / samples of a step: makes the sum the gradient of the mean loss

  GPUSOCK_FN void apply(float gradient_sum, float& velocity, float& weight) const {
    velocity = multiply_add(momentum, velocity, gradient_sum * scale);
    weight = multiply_add(-learning_rate, velocity, weight);
  }
};

}  // namespace param_sync
