#pragma once
/// @file How the ranks' gradients become new weights in the serial reference: in rank order, as owners do it.

#include "param_sync/update/state.hpp"

#include "gpusock/device.cuh"

#include <cstdint>

namespace param_sync {

/// Sums each parameter's gradients in rank order and lets the update apply them. `gradient_of(rank)` returns a pointer
/// to the first parameter's. A thread takes the parameters `first`, `first` + `stride`, and so on.
template <class Update, class GradientOf>
__device__ void apply_gradients(const Update& update, int nodes, std::uint32_t parameters, GradientOf gradient_of,
                                UpdateStates states, float* weights, std::uint32_t first, std::uint32_t stride) {
  for (std::uint32_t i = first; i < parameters; i += stride) {
    float sum = gradient_of(0)[i];
    for (int rank = 1; rank < nodes; ++rank) sum += gradient_of(rank)[i];
    update.apply(sum, states.of(i), weights[i]);
  }
}

}  // namespace param_sync
