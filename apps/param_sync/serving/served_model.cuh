#pragma once
/// @file What a block of the server computes: the scores of a cohort of images.

#include "arithmetic/pixels.cuh"
#include "layers/layer.hpp"

#include "gpusock/device.cuh"

#include <cstdint>

namespace param_sync {

/// A layer of any kind, for a kernel that goes through all of them, and where its outputs are. Only the member of its
/// kind is used.
struct ServedLayer {
  enum Kind : std::uint32_t { dense, convolution, batch_norm };

  Kind kind = dense;
  Dense as_dense;
  Conv2d as_convolution;
  BatchNorm as_batch_norm;
  std::uint32_t offset = 0;  ///< index of its first parameter in the model
  LayerOutput output;
};

/// The model of a block, by value. All pointers point to device memory.
struct ServedModel {
  const ServedLayer* layers = nullptr;
  int count = 0;
  std::uint32_t rows = 0, columns = 0;  ///< of an image
  std::uint32_t border = 0;             ///< Layout::border
  std::uint32_t classes = 0;
  float* inputs = nullptr;  ///< of the first layer, for each image of a cohort

  __device__ std::uint32_t pixels() const { return rows * columns; }
};

/// Computes the scores of `count` images, which `image_of(number)` finds, and returns them, image after image.
/// Block-collective: the whole grid is this block, since the layers' functions divide their work among the grid.
template <class Block, class ImageOf>
__device__ const float* scores_of(const Block& block, const ServedModel& model, const float* weights,
                                  std::uint32_t count, ImageOf image_of) {
  const std::uint32_t inputs = (model.rows + 2 * model.border) * (model.columns + 2 * model.border);
  for (std::uint32_t of = 0; of < count; ++of) {
    const std::uint8_t* const image = image_of(of);
    for (std::uint32_t i = block.thread_rank(); i < inputs; i += block.size()) {
      const ImagePlace place(model.rows, model.columns, model.border, i);
      model.inputs[std::size_t{of} * inputs + i] = pixel_input(place.is_inside ? image[place.i] : 0);
    }
  }
  block.sync();
  const float* from = model.inputs;
  for (int number = 0; number < model.count; ++number) {
    const ServedLayer& layer = model.layers[number];
    const float* const own = weights + layer.offset;
    if (layer.kind == ServedLayer::dense) forward(layer.as_dense, own, from, count, layer.output);
    if (layer.kind == ServedLayer::convolution) forward(layer.as_convolution, own, from, count, layer.output);
    if (layer.kind == ServedLayer::batch_norm) forward(layer.as_batch_norm, own, from, count, layer.output);
    block.sync();
    from = layer.output.values;
  }
  return from;
}

}  // namespace param_sync
