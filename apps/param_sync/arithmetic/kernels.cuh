#pragma once
/// @file The model's arithmetic: a multilayer perceptron with ReLU and softmax cross-entropy.
/// Device functions that compute one block's part; kernels elsewhere wrap them. All block-collective.

#include "arithmetic/tile.cuh"
#include "param_sync/update/state.hpp"

#include <cmath>
#include <cstdint>

namespace param_sync {

inline constexpr unsigned kComputeThreads = 64;  ///< threads of a compute block
inline constexpr float kPixelMean = 0.2860f;     ///< Fashion-MNIST's, of pixels scaled to 0..1; any near value will do
inline constexpr float kPixelDeviation = 0.3530f;

/// Compute blocks that a rows x columns matrix is worth, one tile for each thread.
inline unsigned compute_blocks(std::uint32_t rows, std::uint32_t columns) {
  return (tile_count(rows, columns) + kComputeThreads - 1) / kComputeThreads;
}

/// Images of one batch to floats around zero. `order` names the images.
__device__ inline void gather_images(const std::uint8_t* images, std::uint32_t pixels, const std::uint32_t* order,
                                     std::uint32_t batch, float* to) {
  for (std::uint32_t b = blockIdx.x; b < batch; b += gridDim.x) {
    const std::uint8_t* image = images + std::size_t{order[b]} * pixels;
    for (std::uint32_t i = threadIdx.x; i < pixels; i += blockDim.x) {
      to[std::size_t{b} * pixels + i] = (static_cast<float>(image[i]) / 255.0f - kPixelMean) / kPixelDeviation;
    }
  }
}

/// output[batch][outputs] = input[batch][inputs] * weights + biases; negative ones to 0 where `relu`.
__device__ inline void layer_forward(const LayerShape& shape, const float* parameters, const float* input,
                                     std::uint32_t batch, bool relu, float* output) {
  const std::uint32_t tiles = tile_count(batch, shape.outputs);
  for (std::uint32_t t = blockIdx.x * blockDim.x + threadIdx.x; t < tiles; t += gridDim.x * blockDim.x) {
    const TilePlace at = tile_place(t, batch, shape.outputs);
    const Float4 bias = load4(parameters + std::size_t{shape.inputs} * shape.outputs + at.column, 1, at.columns);
    Float4 sum[kTileRows];
#pragma unroll
    for (std::uint32_t r = 0; r < kTileRows; ++r) sum[r] = bias;
    multiply_tile(sum, {input + std::size_t{at.row} * shape.inputs, shape.inputs, 1},
                  {parameters + at.column, shape.outputs, 1}, shape.inputs, at.rows, at.columns);
#pragma unroll
    for (std::uint32_t r = 0; r < kTileRows; ++r) {
      for (std::uint32_t c = 0; r < at.rows && c < at.columns; ++c) {
        const float value = sum[r].column[c];
        output[std::size_t{at.row + r} * shape.outputs + at.column + c] = relu && !(value > 0.0f) ? 0.0f : value;
      }
    }
  }
}

/// The gradient by a layer's input where that input is a ReLU's output: 0 where the ReLU was.
__device__ inline void layer_backward_input(const LayerShape& shape, const float* parameters, const float* delta,
                                            const float* input, std::uint32_t batch, float* input_delta) {
  const std::uint32_t tiles = tile_count(batch, shape.inputs);
  for (std::uint32_t t = blockIdx.x * blockDim.x + threadIdx.x; t < tiles; t += gridDim.x * blockDim.x) {
    const TilePlace at = tile_place(t, batch, shape.inputs);
    Float4 sum[kTileRows] = {};
    multiply_tile(sum, {delta + std::size_t{at.row} * shape.outputs, shape.outputs, 1},
                  {parameters + std::size_t{at.column} * shape.outputs, 1, shape.outputs}, shape.outputs, at.rows,
                  at.columns);
#pragma unroll
    for (std::uint32_t r = 0; r < kTileRows; ++r) {
      for (std::uint32_t c = 0; r < at.rows && c < at.columns; ++c) {
        const std::size_t i = std::size_t{at.row + r} * shape.inputs + at.column + c;
        input_delta[i] = input[i] > 0.0f ? sum[r].column[c] : 0.0f;
      }
    }
  }
}

/// A tile of a layer's gradient: rows are inputs, and the last row is that of the biases.
struct GradientTile {
  std::uint32_t row, rows;
  std::uint32_t column, columns;

  __device__ std::size_t index(const LayerShape& shape, std::uint32_t r, std::uint32_t c) const {
    return std::size_t{row + r} * shape.outputs + column + c;
  }

  /// Sums it over a batch.
  __device__ __forceinline__ void sum(const LayerShape& shape, const float* input, const float* delta,
                                      std::uint32_t batch, Float4 (&to)[kTileRows]) const {
    const float one = 1.0f;  // what a bias is multiplied by
    const LeftMatrix left = row == shape.inputs ? LeftMatrix{&one, 0, 0} : LeftMatrix{input + row, 1, shape.inputs};
    multiply_tile(to, left, {delta + column, shape.outputs, 1}, batch, rows, columns);
  }
};

/// Calls with each tile of one block's rows (LayerShape::block_range) that this thread computes.
template <class Call>
__device__ __forceinline__ void for_gradient_tiles(const LayerShape& shape, std::uint32_t block, Call call) {
  const std::uint32_t across = (shape.outputs + kTileColumns - 1) / kTileColumns;
  const std::uint32_t first = block * shape.tiles_per_block;
  const std::uint32_t tiles = min(shape.tiles_per_block, shape.row_tiles() - first) * across;
  for (std::uint32_t t = threadIdx.x; t < tiles; t += blockDim.x) {
    const std::uint32_t tile = first + t / across;
    const std::uint32_t row = shape.tile_row(tile), column = t % across * kTileColumns;
    call(GradientTile{row, shape.tile_row(tile + 1) - row, column, min(kTileColumns, shape.outputs - column)});
  }
}

/// The gradient by the parameters of one block's rows, summed over the batch. gradient[i] is where that of the layer's
/// parameter i goes: `gradient` may also be an object with such an operator.
template <class Gradient>
__device__ __forceinline__ void layer_backward_parameters(const LayerShape& shape, std::uint32_t block,
                                                          const float* input, const float* delta, std::uint32_t batch,
                                                          const Gradient& gradient) {
  for_gradient_tiles(shape, block, [&](const GradientTile& tile) {
    Float4 sum[kTileRows] = {};
    tile.sum(shape, input, delta, batch, sum);
#pragma unroll
    for (std::uint32_t r = 0; r < kTileRows; ++r) {
      for (std::uint32_t c = 0; r < tile.rows && c < tile.columns; ++c) {
        gradient[tile.index(shape, r, c)] = sum[r].column[c];
      }
    }
  });
}

/// All ranks' gradients by the parameters of one block's rows, each made of its factors, are summed in the order of
/// ranks and applied: the same arithmetic as where each rank makes its own. `errors_of(rank)` and `inputs_of(rank)`
/// point to that rank's output deltas and inputs.
template <class ErrorsOf, class InputsOf, class Update>
__device__ inline void layer_apply_factors(const LayerShape& shape, std::uint32_t block, int ranks, ErrorsOf errors_of,
                                           InputsOf inputs_of, std::uint32_t batch, const Update& update,
                                           UpdateStates states, float* weights) {
  for_gradient_tiles(shape, block, [&](const GradientTile& tile) {
    Float4 all[kTileRows] = {};
    tile.sum(shape, inputs_of(0), errors_of(0), batch, all);
    for (int rank = 1; rank < ranks; ++rank) {
      Float4 sum[kTileRows] = {};
      tile.sum(shape, inputs_of(rank), errors_of(rank), batch, sum);
#pragma unroll
      for (std::uint32_t r = 0; r < kTileRows; ++r) {
        for (std::uint32_t c = 0; c < kTileColumns; ++c) all[r].column[c] += sum[r].column[c];
      }
    }
#pragma unroll
    for (std::uint32_t r = 0; r < kTileRows; ++r) {
      for (std::uint32_t c = 0; r < tile.rows && c < tile.columns; ++c) {
        const std::size_t i = tile.index(shape, r, c);
        update.apply(all[r].column[c], states.of(i), weights[i]);
      }
    }
  });
}

/// Softmax cross-entropy of one sample: its loss in nats; `delta`, the gradient by the logits.
__device__ inline float sample_loss(const float* logits, std::uint32_t classes, std::uint32_t label, float* delta) {
  float largest = logits[0];
  for (std::uint32_t c = 1; c < classes; ++c) largest = logits[c] > largest ? logits[c] : largest;
  float sum = 0.0f;
  for (std::uint32_t c = 0; c < classes; ++c) {
    delta[c] = expf(logits[c] - largest);
    sum += delta[c];
  }
  for (std::uint32_t c = 0; c < classes; ++c) delta[c] = delta[c] / sum - (c == label ? 1.0f : 0.0f);
  return logf(sum) - (logits[label] - largest);
}

/// The class with the largest logit; the first of equals.
__device__ inline std::uint32_t predicted_class(const float* logits, std::uint32_t classes) {
  std::uint32_t best = 0;
  for (std::uint32_t c = 1; c < classes; ++c) best = logits[c] > logits[best] ? c : best;
  return best;
}

}  // namespace param_sync
