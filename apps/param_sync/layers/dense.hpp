#pragma once
/// @file A fully connected layer with an activation: its sizes and parameters. dense.cuh computes.

#include "layers/activation.hpp"
#include "layers/tensor_shape.hpp"
#include "layers/tile.hpp"

#include "gpusock/types.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace param_sync {

/// outputs = activation(inputs * weights + biases). Its parameters are a row of `outputs` weights for each input, and
/// then the row of biases. Kernels take it by value.
struct Dense {
  std::uint32_t inputs = 0;
  std::uint32_t outputs = 0;
  Activation activation = Activation::none;
  std::uint32_t tiles_per_block = 1;  ///< row tiles of the gradient that a block computes

  static Dense of(std::uint32_t inputs, std::uint32_t outputs, Activation activation) {
    constexpr std::uint32_t kTilesWanted = kComputeThreads;  // for each block
    return {inputs, outputs, activation, std::max(1u, kTilesWanted / ((outputs + kTileColumns - 1) / kTileColumns))};
  }

  GPUSOCK_FN std::uint32_t parameters() const { return (inputs + 1) * outputs; }
  std::string name() const { return std::to_string(inputs) + " x " + std::to_string(outputs); }
  std::string description() const { return "dense " + name() + " " + name_of(activation); }
  std::vector<TensorShape> tensors() const { return {{"weight", {inputs, outputs}}, {"bias", {outputs}}}; }

  /// He-uniform weights (He et al., ICCV 2015), zero biases. `symmetric()` returns a random number from -1 to 1.
  void initialize(std::span<float> parameters, const std::function<float()>& symmetric) const {
    const float limit = std::sqrt(6.0f / static_cast<float>(inputs));
    for (float& weight : parameters.first(std::size_t{inputs} * outputs)) weight = limit * symmetric();
    std::ranges::fill(parameters.last(outputs), 0.0f);
  }

  /// Number of row tiles of the gradient: kTileRows of the inputs' rows in each, and one tile for the row of biases.
  GPUSOCK_FN std::uint32_t row_tiles() const { return (inputs + kTileRows - 1) / kTileRows + 1; }
  /// The first row of a row tile. The number of all rows if `tile` is row_tiles() or more.
  GPUSOCK_FN std::uint32_t tile_row(std::uint32_t tile) const {
    if (tile >= row_tiles()) return inputs + 1;
    return tile * kTileRows < inputs ? tile * kTileRows : inputs;
  }
  GPUSOCK_FN std::uint32_t blocks() const { return (row_tiles() + tiles_per_block - 1) / tiles_per_block; }
  /// The parameters whose gradient a block computes.
  GPUSOCK_FN Range block_range(std::uint32_t block) const {
    return {tile_row(block * tiles_per_block) * outputs, tile_row((block + 1) * tiles_per_block) * outputs};
  }
  unsigned forward_blocks(std::uint32_t batch) const { return compute_blocks(batch, outputs); }
  unsigned backward_blocks(std::uint32_t batch) const { return compute_blocks(batch, inputs); }

  bool has_activation() const { return activation != Activation::none; }
  GPUSOCK_FN float before_activation(float output, float gradient) const {
    return param_sync::before_activation(activation, output, gradient);
  }
};

}  // namespace param_sync
