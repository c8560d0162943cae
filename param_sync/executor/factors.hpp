#pragma once
/// @file Rebuilds gradients of factors that ranks have sent (schedule/factors.hpp).

#include "gpusock/gpusock.hpp"

#include <cstdint>

namespace param_sync::executor {

/// The layout of factors. The gradient of a fully connected layer of `rows` x `columns` weights is the sum over all
/// ranks' samples of the products u vᵀ. The factors of all ranks lie one after the other, as an all-gather leaves them
/// in a tensor. For each rank these are its samples' u (`rows` floats each), and then their v (`columns` floats each).
struct FactorLayout {
  std::uint32_t rows = 0;     ///< of the weights: outputs of the layer
  std::uint32_t columns = 0;  ///< of the weights: inputs of the layer
  std::uint32_t samples = 0;  ///< samples of each rank
  std::uint32_t ranks = 1;    ///< ranks that give factors

  /// Floats that one rank gives.
  GPUSOCK_FN std::uint64_t floats_of_rank() const {
    return std::uint64_t{samples} * (std::uint64_t{rows} + std::uint64_t{columns});
  }
  /// Floats that all ranks give.
  GPUSOCK_FN std::uint64_t gathered_floats() const { return ranks * floats_of_rank(); }
  /// Floats of the gradient.
  GPUSOCK_FN std::uint64_t gradient_floats() const { return std::uint64_t{rows} * columns; }
  /// Where the u of a rank's sample begins.
  GPUSOCK_FN std::uint64_t u_begin(std::uint32_t rank, std::uint32_t sample) const {
    return rank * floats_of_rank() + std::uint64_t{sample} * rows;
  }
  /// Where the v of a rank's sample begins.
  GPUSOCK_FN std::uint64_t v_begin(std::uint32_t rank, std::uint32_t sample) const {
    return u_begin(rank, samples) + std::uint64_t{sample} * columns;
  }
};

/// Launches the kernel that makes the gradient of all ranks' factors; does not wait. Both arrays are memory that
/// kernels reach. The kernel adds rank after rank, and sample after sample, so that all ranks get the same bits. Throws
/// gpusock::Error (EINVAL) if a size in the layout is 0, and what launch() throws.
void rebuild_gradient(gpusock::Context& context, const FactorLayout& layout, const float* gathered, float* gradient);

/// Launches the kernel that makes weights of a gradient: weight -= rate * gradient; does not wait. Throws what launch()
/// throws.
void descend(gpusock::Context& context, const float* gradient, float rate, float* weights, std::uint64_t count);

}  // namespace param_sync::executor
