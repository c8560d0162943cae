#pragma once
/// @file What an update keeps of each parameter from step to step.

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync {

/// The settings of all updates, which programs give. Each update uses the settings that it knows.
struct UpdateSettings {
  float learning_rate = 0;  ///< step size
  float momentum = 0;       ///< share of the last update that is kept; 0: none
  float scale = 0;          ///< 1 / samples of a step: makes the sum the gradient of the mean loss
  bool nesterov = false;    ///< momentum is Nesterov's
  float l1 = 0;             ///< weight of the L1 norm in the loss; 0: it has none
};

/// The state of one parameter. Float k lies `stride` floats after float k - 1: memory holds the first floats of all
/// parameters, then the second floats, and so on. All are 0 at the beginning.
struct UpdateState {
  float* first = nullptr;    ///< float 0
  std::uint64_t stride = 0;  ///< floats from float k to float k + 1
  /// Float k of the state.
  GPUSOCK_FN float& operator[](std::uint64_t k) const { return first[k * stride]; }
};

/// The states of consecutive parameters, in device memory. Kernels take it by value.
struct UpdateStates {
  float* first = nullptr;        ///< float 0 of the first parameter
  std::uint64_t parameters = 0;  ///< how many parameters have memory: the stride
  /// The state of parameter i.
  GPUSOCK_FN UpdateState of(std::uint64_t i) const { return {first + i, parameters}; }
  /// The states from parameter i on.
  GPUSOCK_FN UpdateStates from(std::uint64_t i) const { return {first + i, parameters}; }
};

}  // namespace param_sync
