#pragma once
/// @file Activations: what a layer makes of its sums.

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

/// The gradient by a sum, of the gradient by what the activation has made of it.
GPUSOCK_FN inline float before_activation(Activation activation, float output, float gradient) {
  return activation == Activation::relu && !(output > 0.0f) ? 0.0f : gradient;
}

inline const char* name_of(Activation activation) { return activation == Activation::relu ? "relu" : "none"; }

}  // namespace param_sync
