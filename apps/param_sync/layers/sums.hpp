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

  /// Makes the gradient with respect to the sums of output `i` of a batch from that with respect to the output. `delta`
  /// gets it; with windows it holds the slopes before.
  GPUSOCK_FN void backward(std::uint32_t i, float output, float gradient, float* delta) const {
    if (pool == 1) {
      delta[i] = before_activation(activation, output, gradient);
      return;
    }
    const std::uint32_t window = i / channels, row = window / columns, column = window % columns;
    float* first = delta + (std::size_t{row} * pool * columns + column) * pool * channels + i % channels;
    for (std::uint32_t y = 0; y < pool; ++y) {
      for (std::uint32_t x = 0; x < pool; ++x) {
        float& at = first[(y * columns * pool + x) * channels];
        at = at != 0.0f ? gradient : 0.0f;  // a slope is 0 or 1
      }
    }
  }
};

}  // namespace param_sync
