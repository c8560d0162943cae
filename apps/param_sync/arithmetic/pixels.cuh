#pragma once
/// @file How the pixels of images become the first layer's inputs.

#include "gpusock/device.cuh"

#include <cstdint>

namespace param_sync {

/// Where the first layer's input `i` is in an image, around which there is a border of background.
struct ImagePlace {
  bool is_inside = true;
  std::uint32_t i;  ///< the pixel, if it is inside

  __device__ ImagePlace(std::uint32_t rows, std::uint32_t columns, std::uint32_t border, std::uint32_t input)
      : i(input) {
    if (border == 0) return;
    const std::uint32_t wide = columns + 2 * border;
    const std::uint32_t row = input / wide - border, column = input % wide - border;  // below 0 is large, too
    is_inside = row < rows && column < columns;
    i = row * columns + column;
  }
};

/// A pixel as a float around zero.
__device__ inline float pixel_input(std::uint8_t pixel) {
  constexpr float kMean = 0.2860f;  // Fashion-MNIST's, of pixels scaled to 0..1; any near value will do
  constexpr float kDeviation = 0.3530f;
  return (static_cast<float>(pixel) / 255.0f - kMean) / kDeviation;
}

}  // namespace param_sync
