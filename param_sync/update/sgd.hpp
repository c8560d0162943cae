#pragma once
/// @file Stochastic gradient descent with momentum (Polyak, 1964), and with Nesterov's (as in Sutskever et al., "On the
/// importance of initialization and momentum in deep learning", ICML 2013).

#include "param_sync/update/multiply_add.hpp"
#include "param_sync/update/state.hpp"

namespace param_sync {

/// velocity = momentum * velocity + scale * sum; weight -= learning_rate * velocity. With Nesterov's momentum a weight
/// goes along momentum * velocity + scale * sum instead, with the new velocity.
struct Sgd {
  static constexpr const char* kName = "sgd";  ///< the update's name in error messages
  static constexpr int kStateFloats = 1;       ///< floats of state per parameter: the velocity

  float learning_rate = 0;  ///< see UpdateSettings
  float momentum = 0;       ///< see UpdateSettings
  float scale = 0;          ///< see UpdateSettings
  bool nesterov = false;    ///< see UpdateSettings

  /// Makes the update from a program's settings.
  static constexpr Sgd of(const UpdateSettings& settings) {
    return {settings.learning_rate, settings.momentum, settings.scale, settings.nesterov};
  }

  /// Updates one weight by the sum of all gradients of a step.
  GPUSOCK_FN void apply(float gradient_sum, UpdateState state, float& weight) const {
    float& velocity = state[0];
    const float gradient = gradient_sum * scale;
    velocity = multiply_add(momentum, velocity, gradient);
    weight = multiply_add(-learning_rate, nesterov ? multiply_add(momentum, velocity, gradient) : velocity, weight);
  }
};

}  // namespace param_sync
