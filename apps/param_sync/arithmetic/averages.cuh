#pragma once
/// @file Averages of weights that nodes have trained apart: local SGD (Stich, ICLR 2019), federated averaging (McMahan
/// et al., AISTATS 2017), and those that come late (Douillard et al., "Streaming DiLoCo with overlapping
/// communication", 2025).

#include "gpusock/types.hpp"

namespace param_sync {

/// What a node adds to the average of all nodes' weights: its part of the change since the last average.
GPUSOCK_FN inline float part_of_change(float weight, float average, int nodes) {
  return (weight - average) * (1.0f / static_cast<float>(nodes));
}

/// What a node goes on with if it has gone on while the average was on its way. (1 - alpha) * average + alpha * weight
/// is in Streaming DiLoCo, whose alpha is 0.5.
GPUSOCK_FN inline float taken_late(float average, float weight) { return 0.5f * average + 0.5f * weight; }

}  // namespace param_sync
