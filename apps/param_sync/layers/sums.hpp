#pragma once
/// @file What a layer leaves for the layer above: outputs, and how they were made of its sums.

#include "layers/activation.hpp"

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync {

/// Where a layer's forward() writes.
struct LayerOutput {
  float* values = nullptr;  ///< [batch][outputs]
  /// [batch][sum_count()]: where the gradient with respect to the layer's sums will be. A layer that pools leaves there
  /// the derivative of the outputs with respect to each sum. Other layers leave it alone.
  float* slopes = nullptr;
};

/// How outputs are made of sums: each output is the activation of the largest sum of its window. The kernels of the
/// layer above take this by value, whatever kind of layer is below: they are templates of one kind, not of two.
struct Sums {
  Activation activation = Activation::none;
  std::uint32_t pool = 1;      ///< rows and columns of a window. 1: each sum has an output
  std::uint32_t columns = 1;   ///< windows in a row of the image
  std::uint32_t channels = 1;  ///< outputs of a place in the image; they lie together

  /// The index of sum `of` (0 to pool * pool - 1) of output `i` of a batch.
  GPUSOCK_FN std::size_t index(std::uint32_t i, std::uint32_t of) const {
    const std::uint32_t window = i / channels, row = window / columns, column = window % columns;
    const std::size_t place = (std::size_t{row} * pool + of / pool) * (columns * pool) + column * pool + of % pool;
    return place * channels + i % channels;
  }

  /// Makes the gradient with respect to the sums of output `i` of a batch from that with respect to the output. `delta`
  /// gets it; with windows it holds the slopes before.
  GPUSOCK_FN void backward(std::uint32_t i, float output, float gradient, float* delta) const {
    if (pool == 1) {
      delta[i] = before_activation(activation, output, gradient);
      return;
    }
    for (std::uint32_t of = 0; of < pool * pool; ++of) {
      float& at = delta[index(i, of)];
      at = at != 0.0f ? gradient : 0.0f;  // a slope is 0 or 1
    }
  }
};

}  // namespace param_sync
