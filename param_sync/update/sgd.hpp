#pragma once
/// @file Stochastic gradient descent with momentum (Polyak, 1964), and with Nesterov's (as in Sutskever et al., "On the
/// importance of initialization and momentum in deep learning", ICML 2013). With an L1 norm in the loss it is proximal
/// gradient descent (Beck and Teboulle, SIAM J. Imaging Sciences, 2009).

#include "param_sync/update/multiply_add.hpp"
#include "param_sync/update/state.hpp"

namespace param_sync {

/// velocity = momentum * velocity + scale * sum; weight -= learning_rate * velocity. With Nesterov's momentum a weight
/// goes along momentum * velocity + scale * sum instead, with the new velocity. With l1 it then goes towards 0 by
/// learning_rate * l1, and not beyond.
struct Sgd {
  static constexpr const char* kName = "sgd";  ///< the update's name in error messages
  static constexpr int kStateFloats = 1;       ///< floats of state per parameter: the velocity

  float learning_rate = 0;  ///< see UpdateSettings
  float momentum = 0;       ///< see UpdateSettings
  float scale = 0;          ///< see UpdateSettings
  bool nesterov = false;    ///< see UpdateSettings
  float l1 = 0;             ///< see UpdateSettings

  /// Makes the update from a program's settings.
  static constexpr Sgd of(const UpdateSettings& settings) {
    return {settings.learning_rate, settings.momentum, settings.scale, settings.nesterov, settings.l1};
  }

  /// Updates one weight by the sum of all gradients of a step.
  GPUSOCK_FN void apply(float gradient_sum, UpdateState state, float& weight) const {
    float& velocity = state[0];
    const float gradient = gradient_sum * scale;
    velocity = multiply_add(momentum, velocity, gradient);
    weight = multiply_add(-learning_rate, nesterov ? multiply_add(momentum, velocity, gradient) : velocity, weight);
    if (l1 != 0) weight = nearer_to_zero(weight, learning_rate * l1);
  }

 private:
  GPUSOCK_FN static float nearer_to_zero(float weight, float by) {
    return weight > by ? weight - by : weight < -by ? weight + by : 0;
  }
};

}  // namespace param_sync
