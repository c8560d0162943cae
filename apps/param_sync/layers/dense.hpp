#pragma once
/// @file A fully connected layer with an activation: its sizes and parameters, and what kernels compute of it.

#include "layers/activation.hpp"
#include "layers/sums.hpp"
#include "layers/tensor_shape.hpp"
#include "layers/tile.hpp"
#include "param_sync/update/state.hpp"

#include "gpusock/types.hpp"

#if defined(__CUDACC__) || GPUSOCK_KERNELS_ON_CPU
#include "layers/bands.cuh"
#endif

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
  static constexpr bool kHasFactors = true;  ///< schemes may send its factors, as apply_factors() takes them

  std::uint32_t inputs = 0;
  std::uint32_t outputs = 0;
  Activation activation = Activation::none;
  std::uint32_t tiles_per_block = 1;  ///< row tiles of the gradient that a block computes
  std::uint64_t band_bytes = 0;       ///< of weights (--tile); 0: products are not cut

  static Dense of(std::uint32_t inputs, std::uint32_t outputs, Activation activation) {
    constexpr std::uint32_t kTilesWanted = kBlockTiles;  // for each block
    return {inputs, outputs, activation, std::max(1u, kTilesWanted / ((outputs + kTileColumns - 1) / kTileColumns))};
  }

  GPUSOCK_FN std::uint32_t parameters() const { return (inputs + 1) * outputs; }
  std::string name() const { return std::to_string(inputs) + " x " + std::to_string(outputs); }
  std::string description() const { return "dense " + name() + " " + name_of(activation); }
  std::vector<TensorShape> tensors() const { return {{"weight", {inputs, outputs}}, {"bias", {outputs}}}; }

  /// He-uniform weights (He et al., ICCV 2015), zero biases. `symmetric()` returns a random number from -1 to 1.
  void initialize(std::span<float> parameters, const std::function<float()>& symmetric) const {
    initialize(parameters, symmetric, std::sqrt(6.0f / static_cast<float>(inputs)));
  }
  /// Weights from -limit to limit, zero biases.
  void initialize(std::span<float> parameters, const std::function<float()>& symmetric, float limit) const {
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
  GPUSOCK_FN Bands forward_bands() const { return Bands::of(band_bytes, inputs, outputs); }
  /// Above a layer that pools, sums cannot be passed on where the errors will be: slopes are there.
  GPUSOCK_FN Bands backward_bands(const Sums& below) const {
    return Bands::of(below.pool == 1 ? band_bytes : 0, outputs, inputs);
  }
  unsigned forward_blocks(std::uint32_t batch) const { return forward_bands().blocks(batch); }
  unsigned backward_blocks(std::uint32_t batch) const { return backward_bands({}).blocks(batch); }

  std::uint32_t sum_count() const { return outputs; }
  Sums sums() const { return {activation}; }
  bool has_activation() const { return activation != Activation::none; }
};

// What kernels compute. The functions are block-collective, and compute one block's part; kernels elsewhere wrap them.
#if defined(__CUDACC__) || GPUSOCK_KERNELS_ON_CPU

/// Writes the outputs of a tile's sums.
__device__ __forceinline__ void write_outputs(const Dense& layer, const TileBounds& at, const Float4 (&sum)[kTileRows],
                                              float* values) {
#pragma unroll
  for (std::uint32_t r = 0; r < kTileRows; ++r) {
    for (std::uint32_t c = 0; r < at.rows && c < at.columns; ++c) {
      const std::size_t i = std::size_t{at.row + r} * layer.outputs + at.column + c;
      values[i] = activate(layer.activation, sum[r].column[c]);
    }
  }
}

/// Sets a tile's sums to the biases.
__device__ __forceinline__ void begin_sums(const Dense& layer, const float* parameters, const TileBounds& at,
                                           Float4 (&sum)[kTileRows]) {
  const Float4 bias = load4(parameters + std::size_t{layer.inputs} * layer.outputs + at.column, 1, at.columns);
#pragma unroll
  for (std::uint32_t r = 0; r < kTileRows; ++r) sum[r] = bias;
}

/// As forward(), band by band.
__device__ inline void forward_in_bands(const Dense& layer, const float* parameters, const float* input,
                                        std::uint32_t batch, float* values) {
  for_product_tiles(layer.forward_bands(), batch, [&](const TileBounds& at, const auto& steps) {
    Float4 sum[kTileRows];
    if (steps.are_first()) {
      begin_sums(layer, parameters, at, sum);
    } else {
      read_passed(values, layer.outputs, at, sum);
    }
    multiply_tile(sum, {input + std::size_t{at.row} * layer.inputs + steps.begin, layer.inputs, 1},
                  {parameters + std::size_t{steps.begin} * layer.outputs + at.column, layer.outputs, 1}, steps.count(),
                  at.rows, at.columns);
    if (!steps.are_last) return pass_on(sum, layer.outputs, at, values);
    write_outputs(layer, at, sum, values);
  });
}

/// Computes the outputs of a batch from input[batch][inputs].
__device__ inline void forward(const Dense& layer, const float* parameters, const float* input, std::uint32_t batch,
                               LayerOutput output) {
  if (layer.forward_bands().height != 0) return forward_in_bands(layer, parameters, input, batch, output.values);
  // Apart: as one function with the other one, this loop took 1.4 to 1.7 times as long (GCC 12).
  const std::uint32_t tiles = tile_count(batch, layer.outputs);
  for (std::uint32_t t = blockIdx.x * blockDim.x + threadIdx.x; t < tiles; t += gridDim.x * blockDim.x) {
    const TileBounds at = tile_bounds(t, batch, layer.outputs);
    Float4 sum[kTileRows];
    begin_sums(layer, parameters, at, sum);
    multiply_tile(sum, {input + std::size_t{at.row} * layer.inputs, layer.inputs, 1},
                  {parameters + at.column, layer.outputs, 1}, layer.inputs, at.rows, at.columns);
    write_outputs(layer, at, sum, output.values);
  }
}

/// Computes the gradient with respect to the sums of the layer below, of which `input` was made.
__device__ inline void backward_input(const Dense& layer, const float* parameters, const float* delta,
                                      const float* input, std::uint32_t batch, const Sums& below, float* input_delta) {
  for_product_tiles(layer.backward_bands(below), batch, [&](const TileBounds& at, const auto& steps) {
    Float4 sum[kTileRows] = {};
    if (!steps.are_first()) read_passed(input_delta, layer.inputs, at, sum);
    multiply_tile(sum, {delta + std::size_t{at.row} * layer.outputs + steps.begin, layer.outputs, 1},
                  {parameters + std::size_t{at.column} * layer.outputs + steps.begin, 1, layer.outputs}, steps.count(),
                  at.rows, at.columns);
    if (!steps.are_last) return pass_on(sum, layer.inputs, at, input_delta);
#pragma unroll
    for (std::uint32_t r = 0; r < kTileRows; ++r) {
      for (std::uint32_t c = 0; r < at.rows && c < at.columns; ++c) {
        const std::uint32_t i = (at.row + r) * layer.inputs + at.column + c;
        below.backward(i, input[i], sum[r].column[c], input_delta);
      }
    }
  });
}

/// A tile of a layer's gradient. The gradient has one row for each input, and a last row for the biases.
struct GradientTile {
  std::uint32_t row, rows;
  std::uint32_t column, columns;

  __device__ std::size_t index(const Dense& layer, std::uint32_t r, std::uint32_t c) const {
    return std::size_t{row + r} * layer.outputs + column + c;
  }

  /// Adds the tile's sum over a batch to `to`.
  __device__ __forceinline__ void sum(const Dense& layer, const float* input, const float* delta, std::uint32_t batch,
                                      Float4 (&to)[kTileRows]) const {
    const float one = 1.0f;  // what a bias is multiplied by
    const LeftMatrix left = row == layer.inputs ? LeftMatrix{&one, 0, 0} : LeftMatrix{input + row, 1, layer.inputs};
    multiply_tile(to, left, {delta + column, layer.outputs, 1}, batch, rows, columns);
  }

  /// Writes the tile's sums to where the gradients of their parameters go.
  template <class Gradient>
  __device__ __forceinline__ void write(const Dense& layer, const Float4 (&sum)[kTileRows],
                                        const Gradient& gradient) const {
#pragma unroll
    for (std::uint32_t r = 0; r < kTileRows; ++r) {
      for (std::uint32_t c = 0; r < rows && c < columns; ++c) gradient[index(layer, r, c)] = sum[r].column[c];
    }
  }
};

/// Calls `call` with each tile of one block's rows (Dense::block_range) that this thread computes.
template <class Call>
__device__ __forceinline__ void for_gradient_tiles(const Dense& layer, std::uint32_t block, Call call) {
  const std::uint32_t across = (layer.outputs + kTileColumns - 1) / kTileColumns;
  const std::uint32_t first = block * layer.tiles_per_block;
  const std::uint32_t tiles = min(layer.tiles_per_block, layer.row_tiles() - first) * across;
  for (std::uint32_t t = threadIdx.x; t < tiles; t += blockDim.x) {
    const std::uint32_t tile = first + t / across;
    const std::uint32_t row = layer.tile_row(tile), column = t % across * kTileColumns;
    call(GradientTile{row, layer.tile_row(tile + 1) - row, column, min(kTileColumns, layer.outputs - column)});
  }
}

/// Computes the gradient with respect to the parameters of one block's rows, summed over the batch. That of the layer's
/// parameter i goes to gradient[i]: `gradient` may also be an object with such an operator.
template <class Gradient>
__device__ __forceinline__ void backward_parameters(const Dense& layer, const float* /*parameters*/,
                                                    std::uint32_t block, const float* input, const float* delta,
                                                    std::uint32_t batch, const Gradient& gradient) {
  for_gradient_tiles(layer, block, [&](const GradientTile& tile) {
    Float4 sum[kTileRows] = {};
    tile.sum(layer, input, delta, batch, sum);
    tile.write(layer, sum, gradient);
  });
}

/// Makes each rank's gradient of one block's rows from its factors, sums these in rank order, and applies the sum: the
/// same arithmetic as if each rank made its own gradient. The functions errors_of(rank) and inputs_of(rank) return
/// pointers to that rank's output deltas and inputs.
template <class ErrorsOf, class InputsOf, class Update>
__device__ inline void apply_factors(const Dense& layer, std::uint32_t block, int ranks, ErrorsOf errors_of,
                                     InputsOf inputs_of, std::uint32_t batch, const Update& update, UpdateStates states,
                                     float* weights) {
  for_gradient_tiles(layer, block, [&](const GradientTile& tile) {
    Float4 all[kTileRows] = {};
    tile.sum(layer, inputs_of(0), errors_of(0), batch, all);
    for (int rank = 1; rank < ranks; ++rank) {
      Float4 sum[kTileRows] = {};
      tile.sum(layer, inputs_of(rank), errors_of(rank), batch, sum);
#pragma unroll
      for (std::uint32_t r = 0; r < kTileRows; ++r) {
        for (std::uint32_t c = 0; c < kTileColumns; ++c) all[r].column[c] += sum[r].column[c];
      }
    }
#pragma unroll
    for (std::uint32_t r = 0; r < kTileRows; ++r) {
      for (std::uint32_t c = 0; r < tile.rows && c < tile.columns; ++c) {
        const std::size_t i = tile.index(layer, r, c);
        update.apply(all[r].column[c], states.of(i), weights[i]);
      }
    }
  });
}

#endif

}  // namespace param_sync
