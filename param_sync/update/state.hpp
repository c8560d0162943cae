#pragma once
/// @file What an update keeps of each parameter from step to step.

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync {

/// The settings that programs take, of any update. Each update uses what it knows.
struct UpdateSettings {
  float learning_rate = 0;  ///< step size
  float momentum = 0;       ///< share of the last update that is kept; 0: none
  float scale = 0;          ///< 1 / samples of a step: makes the sum the gradient of the mean loss
};

/// The state of one parameter: float k of it is `stride` floats after float k - 1, since memory holds the first floats
/// of all parameters, then the second ones, and so on. 0 at the beginning.
struct UpdateState {
  float* first = nullptr;    ///< float 0
  std::uint64_t stride = 0;  ///< floats from float k to float k + 1
  /// Float k of the parameter.
  GPUSOCK_FN float& operator[](std::uint64_t k) const { return first[k * stride]; }
};

/// The states of neighbouring parameters; in device memory. By value.
struct UpdateStates {
  float* first = nullptr;        ///< float 0 of the first parameter
  std::uint64_t parameters = 0;  ///< that have memory
  /// Of parameter i.
  GPUSOCK_FN UpdateState of(std::uint64_t i) const { return {first + i, parameters}; }
  /// Those from a parameter on.
  GPUSOCK_FN UpdateStates from(std::uint64_t i) const { return {first + i, parameters}; }
};

}  // namespace param_sync
