#pragma once
/// @file The layers of the model, and the nodes that train it. Plain data that kernels take by value.

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

/// The model, and how many nodes train it.
struct Layout {
  int layers = 0;
  int nodes = 0;
  LayerShape layer[kLayersMax] = {};

  GPUSOCK_FN std::uint32_t parameters() const { return layer[layers - 1].offset + layer[layers - 1].parameters(); }

  /// A number that differs where models or numbers of nodes differ: nodes compare theirs.
  std::uint64_t fingerprint() const;
};

/// What a layer is called in messages and reports: "784 x 128".
std::string name_of(const LayerShape& shape);

/// Lays out a model whose layers have these widths: inputs, hidden layers, classes. Throws gpusock::Error (EINVAL)
/// where a limit is passed or a layer has fewer parameters than there are nodes.
Layout make_layout(std::span<const std::uint32_t> widths, int nodes);

/// The parameters that training begins with: He-uniform weights and zero biases, the same on every node.
std::vector<float> initial_weights(const Layout& layout, std::uint64_t seed);

}  // namespace param_sync
