#pragma once
/// @file The model in double precision, written for clarity: what the kernels are compared with.

#include "layout/layout.hpp"

#include <cstdint>
#include <vector>

namespace param_sync::testing {

struct ReferenceResult {
  std::vector<std::vector<double>> outputs;  ///< of each layer, sample after sample
  double mean_loss = 0;
  std::vector<double> gradient;  ///< of the summed loss, by all parameters
};

/// Forward, loss and backward for a batch. `inputs`: sample after sample.
ReferenceResult reference_step(const Layout& layout, const std::vector<double>& parameters,
                               const std::vector<double>& inputs, const std::vector<std::uint8_t>& labels);

}  // namespace param_sync::testing
