#pragma once
/// @file Activations: the functions that layers apply to their sums.

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync {

enum class Activation : std::uint32_t {
  none,
  relu,  ///< max(0, sum): Nair and Hinton, ICML 2010
};

GPUSOCK_FN inline float activate(Activation activation, float sum) {
  return activation == Activation::relu && !(sum > 0.0f) ? 0.0f : sum;
}

/// Makes the gradient with respect to a sum from the gradient with respect to `output`, the activation of that sum.
GPUSOCK_FN inline float before_activation(Activation activation, float output, float gradient) {
  return activation == Activation::relu && !(output > 0.0f) ? 0.0f : gradient;
}

inline const char* name_of(Activation activation) { return activation == Activation::relu ? "relu" : "none"; }

}  // namespace param_sync
