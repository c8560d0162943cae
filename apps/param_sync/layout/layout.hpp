#pragma once
/// @file The layers of the model, and which node owns which of their parameters. Plain data that kernels take by value.

#include "gpusock/types.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace param_sync {

inline constexpr int kLayersMax = 8;
inline constexpr int kNodesMax = 64;
inline constexpr std::uint32_t kWidthMax = 1 << 16;  ///< of a layer
inline constexpr std::uint32_t kTileRows = 8;        ///< rows of a product that one thread computes, see tile.cuh

/// Parameters from `begin` up to and not including `end`, counted from the layer's first.
struct Range {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  GPUSOCK_FN std::uint32_t size() const { return end - begin; }
};

/// A fully connected layer. Its parameters are a row of `outputs` weights for each input, and then the row of biases.
struct LayerShape {
  std::uint32_t inputs = 0;
  std::uint32_t outputs = 0;
  std::uint32_t offset = 0;           ///< where its parameters begin in the model's
  std::uint32_t tiles_per_block = 1;  ///< of the backward kernel: row tiles that a block computes

  GPUSOCK_FN std::uint32_t parameters() const { return (inputs + 1) * outputs; }
  /// Row tiles: the inputs' rows, kTileRows each, and the row of biases by itself.
  GPUSOCK_FN std::uint32_t row_tiles() const { return (inputs + kTileRows - 1) / kTileRows + 1; }
  /// The first row of a row tile; of row_tiles(), the number of rows.
  GPUSOCK_FN std::uint32_t tile_row(std::uint32_t tile) const {
    if (tile >= row_tiles()) return inputs + 1;
    return tile * kTileRows < inputs ? tile * kTileRows : inputs;
  }
  GPUSOCK_FN std::uint32_t blocks() const { return (row_tiles() + tiles_per_block - 1) / tiles_per_block; }
  /// The parameters whose gradient a block of the backward kernel computes.
  GPUSOCK_FN Range block_range(std::uint32_t block) const {
    return {tile_row(block * tiles_per_block) * outputs, tile_row((block + 1) * tiles_per_block) * outputs};
  }
};

/// The model cut into shards: every node owns a contiguous range of each layer.
struct Layout {
  int layers = 0;
  int nodes = 0;
  LayerShape layer[kLayersMax] = {};

  GPUSOCK_FN std::uint32_t parameters() const { return layer[layers - 1].offset + layer[layers - 1].parameters(); }

  /// The owner's part of a layer; never empty.
  GPUSOCK_FN Range shard(int layer_index, int owner) const {
    const std::uint64_t all = layer[layer_index].parameters();
    return {static_cast<std::uint32_t>(all * owner / nodes), static_cast<std::uint32_t>(all * (owner + 1) / nodes)};
  }

  /// Blocks of the layer's backward kernel that compute some of the owner's part.
  GPUSOCK_FN std::uint32_t slice_blocks(int layer_index, int owner) const;

  /// Whose part a parameter of the layer is in.
  GPUSOCK_FN int owner_of(int layer_index, std::uint32_t parameter) const;

  /// The block of the layer's backward kernel that computes this parameter's gradient.
  GPUSOCK_FN std::uint32_t block_of(int layer_index, std::uint32_t parameter) const;

  /// A number that differs where models or shards differ: nodes compare theirs.
  std::uint64_t fingerprint() const;
};

/// What a layer is called in messages and reports: "784 x 128".
std::string name_of(const LayerShape& shape);

/// Lays out a model whose layers have these widths: inputs, hidden layers, classes. Throws gpusock::Error (EINVAL)
/// where a limit is passed or a layer has fewer parameters than there are nodes.
Layout make_layout(std::span<const std::uint32_t> widths, int nodes);

/// The parameters that training begins with: He-uniform weights and zero biases, the same on every node.
std::vector<float> initial_weights(const Layout& layout, std::uint64_t seed);

GPUSOCK_FN inline std::uint32_t Layout::block_of(int layer_index, std::uint32_t parameter) const {
  const LayerShape& shape = layer[layer_index];
  const std::uint32_t row = parameter / shape.outputs;
  const std::uint32_t tile = row < shape.inputs ? row / kTileRows : shape.row_tiles() - 1;
  return tile / shape.tiles_per_block;
}

GPUSOCK_FN inline std::uint32_t Layout::slice_blocks(int layer_index, int owner) const {
  const Range range = shard(layer_index, owner);
  return block_of(layer_index, range.end - 1) - block_of(layer_index, range.begin) + 1;
}

GPUSOCK_FN inline int Layout::owner_of(int layer_index, std::uint32_t parameter) const {
  const std::uint64_t all = layer[layer_index].parameters();
  int owner = static_cast<int>(std::uint64_t{parameter} * nodes / all);  // at most one too low: shards are rounded down
  while (parameter >= shard(layer_index, owner).end) ++owner;
  return owner;
}

}  // namespace param_sync
