#pragma once
/// @file Averages of weights that nodes have trained apart: local SGD (Stich, ICLR 2019), federated averaging (McMahan
/// et al., AISTATS 2017).

#include "gpusock/types.hpp"

namespace param_sync {

/// What a node adds to the average of all nodes' weights: its part of the change since the last average.
GPUSOCK_FN inline float part_of_change(float weight, float average, int nodes) {
  return (weight - average) * (1.0f / static_cast<float>(nodes));
}

}  // namespace param_sync
