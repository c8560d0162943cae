#pragma once
/// @file A convolution of images with an activation and max pooling (LeCun et al., Proceedings of the IEEE, 1998): its
/// sizes and parameters, and what kernels compute of it.

#include "layers/dense.hpp"

#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace param_sync {

/// An image of a sample: row after row, pixel after pixel, the channels of a pixel together.
struct ImageShape {
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  std::uint32_t channels = 0;

  GPUSOCK_FN std::uint32_t floats() const { return rows * columns * channels; }
  /// Where a channel is in a batch of such images.
  GPUSOCK_FN std::uint32_t index(std::uint32_t sample, std::uint32_t row, std::uint32_t column,
                                 std::uint32_t channel) const {
    return ((sample * rows + row) * columns + column) * channels + channel;
  }
};

/// outputs = the largest of pool x pool values of activation(patch * weights + biases). A patch is what kernel x kernel
/// pixels have, all within the image: there is no border around it. Sums that fill no whole window are left out.
///
/// Its parameters are those of a Dense layer from a patch to a pixel of the output. Its products are computed in tiles,
/// with the image in the place of the matrix of all patches, which no memory holds. Kernels take it by value.
struct Conv2d {
  static constexpr bool kHasFactors = false;  ///< a sample has a product of vectors for each pixel

  ImageShape image;  ///< of the input
  std::uint32_t kernel = 0;
  std::uint32_t channels = 0;  ///< of the output
  std::uint32_t pool = 1;      ///< 1: no pooling
  Activation activation = Activation::none;
  std::uint32_t inputs = 0;
  std::uint32_t outputs = 0;

  /// The layer has no outputs if the image is too small.
  static Conv2d of(ImageShape image, std::uint32_t kernel, std::uint32_t channels, std::uint32_t pool,
                   Activation activation) {
    Conv2d layer{image, kernel, channels, pool, activation, image.floats()};
    layer.outputs = layer.output_image().floats();
    return layer;
  }

  GPUSOCK_FN ImageShape output_image() const {
    const std::uint32_t smaller = kernel - 1;
    return {image.rows < smaller ? 0 : (image.rows - smaller) / pool,
            image.columns < smaller ? 0 : (image.columns - smaller) / pool, channels};
  }
  /// The sums, as an image.
  GPUSOCK_FN ImageShape sum_image() const {
    const ImageShape output = output_image();
    return {output.rows * pool, output.columns * pool, channels};
  }
  /// The layer from a patch to a pixel. Each row of tiles of its gradient has a block of its own: its sums are long.
  GPUSOCK_FN Dense of_patch() const { return {kernel * kernel * image.channels, channels, activation, 1}; }
  /// Where input `i` of a patch is, counted from the patch's first.
  GPUSOCK_FN std::uint32_t patch_offset(std::uint32_t i) const {
    const std::uint32_t in_row = kernel * image.channels;
    return i / in_row * image.columns * image.channels + i % in_row;
  }

  GPUSOCK_FN std::uint32_t parameters() const { return of_patch().parameters(); }
  std::string name() const {
    return "conv " + std::to_string(kernel) + " x " + std::to_string(kernel) + " x " + std::to_string(channels);
  }
  std::string description() const {
    return name() + " of " + std::to_string(image.rows) + " x " + std::to_string(image.columns) + " x " +
           std::to_string(image.channels) + " pool " + std::to_string(pool) + " " + name_of(activation);
  }
  std::vector<TensorShape> tensors() const {
    return {{"weight", {kernel, kernel, image.channels, channels}}, {"bias", {channels}}};
  }

  /// As Dense, but pooled outputs are the largest of several sums, and few of them are 0: their weights need no factor
  /// of two for the sums that ReLU cuts off.
  void initialize(std::span<float> parameters, const std::function<float()>& symmetric) const {
    const Dense patch = of_patch();
    patch.initialize(parameters, symmetric, std::sqrt((pool == 1 ? 6.0f : 3.0f) / static_cast<float>(patch.inputs)));
  }

  GPUSOCK_FN std::uint32_t blocks() const { return of_patch().blocks(); }
  GPUSOCK_FN Range block_range(std::uint32_t block) const { return of_patch().block_range(block); }
  unsigned forward_blocks(std::uint32_t batch) const { return image_blocks(batch, output_image()); }
  unsigned backward_blocks(std::uint32_t batch) const { return image_blocks(batch, image); }

  std::uint32_t sum_count() const { return sum_image().floats(); }
  Sums sums() const { return {activation, pool, output_image().columns, channels}; }
  bool has_activation() const { return activation != Activation::none; }

 private:
  /// Blocks that compute these images of a batch, with one tile for each thread.
  static unsigned image_blocks(std::uint32_t batch, ImageShape of) {
    return compute_blocks(batch,
                          of.rows * of.columns * ((of.channels + kTileColumns - 1) / kTileColumns) * kTileColumns);
  }
};

#if defined(__CUDACC__) || GPUSOCK_KERNELS_ON_CPU

/// The tile of a batch of images that a thread computes: a pixel's channels from `channel` on, of some samples. A tile
/// has one pixel, so that all its samples have the same neighbours.
struct ImageTile {
  std::uint32_t sample, samples;
  std::uint32_t row, column;
  std::uint32_t channel, channels;
};

/// The samples of a tile, for multiply_rows(): the last one again for those that it lacks.
struct SampleRows {
  const float* row[kTileRows];

  /// A sample has so many `floats` in `data`.
  __device__ SampleRows(const float* data, std::uint32_t floats, const ImageTile& at) {
#pragma unroll
    for (std::uint32_t r = 0; r < kTileRows; ++r)
      row[r] = data + std::size_t{at.sample + min(r, at.samples - 1)} * floats;
  }
};

/// Calls `call` with each tile that this thread computes.
template <class Call>
__device__ __forceinline__ void for_image_tiles(std::uint32_t batch, const ImageShape& image, Call call) {
  const std::uint32_t across = (image.channels + kTileColumns - 1) / kTileColumns;
  const std::uint32_t pixels = image.rows * image.columns;
  const std::uint32_t tiles = (batch + kTileRows - 1) / kTileRows * pixels * across;
  for (std::uint32_t t = blockIdx.x * blockDim.x + threadIdx.x; t < tiles; t += gridDim.x * blockDim.x) {
    const std::uint32_t channel = t % across * kTileColumns, pixel = t / across % pixels;
    const std::uint32_t sample = t / across / pixels * kTileRows;
    call(ImageTile{sample, min(kTileRows, batch - sample), pixel / image.columns, pixel % image.columns, channel,
                   min(kTileColumns, image.channels - channel)});
  }
}

/// Writes the tile's channels of a sample, of the largest sums of a window, which are number `found` of the window;
/// and, with pooling, the slopes: 1 at these sums, unless the activation is flat there, and 0 at the others.
__device__ __forceinline__ void write_pixel(const Conv2d& layer, const ImageTile& at, std::uint32_t sample,
                                            const Float4& largest, const std::uint32_t (&found)[kTileColumns],
                                            const LayerOutput& output) {
  float* values = output.values + layer.output_image().index(sample, at.row, at.column, at.channel);
  float slope[kTileColumns];
  for (std::uint32_t c = 0; c < kTileColumns; ++c) {
    const float value = activate(layer.activation, largest.column[c]);
    slope[c] = before_activation(layer.activation, value, 1.0f);
    if (c < at.channels) values[c] = value;
  }
  const ImageShape sums = layer.sum_image();
  for (std::uint32_t of = 0; layer.pool != 1 && of < layer.pool * layer.pool; ++of) {
    float* slopes = output.slopes + sums.index(sample, at.row * layer.pool + of / layer.pool,
                                               at.column * layer.pool + of % layer.pool, at.channel);
    for (std::uint32_t c = 0; c < at.channels; ++c) slopes[c] = of == found[c] ? slope[c] : 0.0f;
  }
}

/// Computes the outputs of a batch, and, with pooling, the slopes. Of equal sums of a window the first one counts.
__device__ inline void forward(const Conv2d& layer, const float* parameters, const float* input, std::uint32_t batch,
                               LayerOutput output) {
  const std::uint32_t steps = layer.kernel * layer.image.channels,
                      row_floats = layer.image.columns * layer.image.channels;
  const float* biases = parameters + std::size_t{steps} * layer.kernel * layer.channels;
  for_image_tiles(batch, layer.output_image(), [&](const ImageTile& at) {
    const SampleRows images(input, layer.inputs, at);
    const Float4 bias = load4(biases + at.channel, 1, at.channels);
    Float4 largest[kTileRows] = {};
    std::uint32_t found[kTileRows][kTileColumns] = {};
    for (std::uint32_t of = 0; of < layer.pool * layer.pool; ++of) {
      const std::uint32_t row = at.row * layer.pool + of / layer.pool,
                          column = at.column * layer.pool + of % layer.pool;
      Float4 sum[kTileRows];
#pragma unroll
      for (std::uint32_t r = 0; r < kTileRows; ++r) sum[r] = bias;
      for (std::uint32_t k = 0; k < layer.kernel; ++k) {
        multiply_rows(sum, images.row, (row + k) * row_floats + column * layer.image.channels, 1,
                      {parameters + std::size_t{k} * steps * layer.channels + at.channel, layer.channels, 1}, steps,
                      at.channels);
      }
#pragma unroll
      for (std::uint32_t r = 0; r < kTileRows; ++r) {
        for (std::uint32_t c = 0; c < kTileColumns; ++c) {
          const bool larger = of == 0 || sum[r].column[c] > largest[r].column[c];
          largest[r].column[c] = larger ? sum[r].column[c] : largest[r].column[c];
          found[r][c] = larger ? of : found[r][c];
        }
      }
    }
#pragma unroll
    for (std::uint32_t r = 0; r < kTileRows; ++r) {
      if (r < at.samples) write_pixel(layer, at, at.sample + r, largest[r], found[r], output);
    }
  });
}

/// Computes the gradient with respect to the sums of the layer below, of which `input` was made.
__device__ inline void backward_input(const Conv2d& layer, const float* parameters, const float* delta,
                                      const float* input, std::uint32_t batch, const Sums& below, float* input_delta) {
  const ImageShape sums = layer.sum_image();
  for_image_tiles(batch, layer.image, [&](const ImageTile& at) {
    const SampleRows deltas(delta, sums.floats(), at);
    Float4 sum[kTileRows] = {};
    for (std::uint32_t k = 0; k < layer.kernel * layer.kernel; ++k) {
      // The sum in which weight k multiplies this pixel; below 0 is large, too.
      const std::uint32_t row = at.row - k / layer.kernel, column = at.column - k % layer.kernel;
      if (row >= sums.rows || column >= sums.columns) continue;
      const std::size_t weights = std::size_t{k} * layer.image.channels + at.channel;
      multiply_rows(sum, deltas.row, sums.index(0, row, column, 0), 1,
                    {parameters + weights * layer.channels, 1, layer.channels}, layer.channels, at.channels);
    }
#pragma unroll
    for (std::uint32_t r = 0; r < kTileRows; ++r) {
      for (std::uint32_t c = 0; r < at.samples && c < at.channels; ++c) {
        const std::uint32_t i = layer.image.index(at.sample + r, at.row, at.column, at.channel + c);
        below.backward(i, input[i], sum[r].column[c], input_delta);
      }
    }
  });
}

/// Adds to `sum` the tile's sum over all patches of a batch.
__device__ __forceinline__ void sum_patches(const Conv2d& layer, const GradientTile& tile, const float* input,
                                            const float* delta, std::uint32_t batch, Float4 (&sum)[kTileRows]) {
  const ImageShape sums = layer.sum_image();
  const float* row[kTileRows];
#pragma unroll
  for (std::uint32_t r = 0; r < kTileRows; ++r) row[r] = input + layer.patch_offset(tile.row + min(r, tile.rows - 1));
  for (std::uint32_t sample = 0; sample < batch; ++sample) {
    for (std::uint32_t y = 0; y < sums.rows; ++y) {
      multiply_rows(sum, row, layer.image.index(sample, y, 0, 0), layer.image.channels,
                    {delta + sums.index(sample, y, 0, tile.column), sums.channels, 1}, sums.columns, tile.columns);
    }
  }
}

/// Computes the gradient with respect to the parameters of one block's rows, summed over the batch. That of the layer's
/// parameter i goes to gradient[i], as with Dense.
template <class Gradient>
__device__ __forceinline__ void backward_parameters(const Conv2d& layer, const float* /*parameters*/,
                                                    std::uint32_t block, const float* input, const float* delta,
                                                    std::uint32_t batch, const Gradient& gradient) {
  const Dense of_patch = layer.of_patch();
  for_gradient_tiles(of_patch, block, [&](const GradientTile& tile) {
    Float4 sum[kTileRows] = {};
    if (tile.row == of_patch.inputs) {  // the biases
      const ImageShape sums = layer.sum_image();
      tile.sum(of_patch, input, delta, batch * sums.rows * sums.columns, sum);
    } else {
      sum_patches(layer, tile, input, delta, batch, sum);
    }
    tile.write(of_patch, sum, gradient);
  });
}

#endif

}  // namespace param_sync
