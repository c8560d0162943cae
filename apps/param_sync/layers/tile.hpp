#pragma once
/// @file The sizes of the tiles in which matrix products are computed (tile.cuh), and how products are cut into bands
/// so that weights stay in a cache (bands.cuh).

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync {

inline constexpr std::uint32_t kTileRows = 8;
inline constexpr std::uint32_t kTileColumns = 4;
inline constexpr unsigned kBlockTiles = 64;  ///< tiles that a block computes at a time
/// Threads of a block that computes. On the CPU device a block is one thread, which computes one tile after the other:
/// several threads would only be switches between them at barriers.
inline constexpr unsigned kComputeThreads = GPUSOCK_KERNELS_ON_CPU ? 1 : kBlockTiles;

/// Number of tiles of a rows x columns matrix.
GPUSOCK_FN inline std::uint32_t tile_count(std::uint32_t rows, std::uint32_t columns) {
  return (rows + kTileRows - 1) / kTileRows * ((columns + kTileColumns - 1) / kTileColumns);
}

/// Number of blocks for a rows x columns matrix, with kBlockTiles for each.
inline unsigned compute_blocks(std::uint32_t rows, std::uint32_t columns) {
  return (tile_count(rows, columns) + kBlockTiles - 1) / kBlockTiles;
}

/// Columns that a block computes of a product that is cut.
inline constexpr std::uint32_t kPanelColumns = kBlockTiles * kTileColumns;
/// The fewest bytes of a band (--tile): a weight for each of a block's columns.
inline constexpr std::uint64_t kBandBytesMin = kPanelColumns * sizeof(float);

/// How the product of a batch and a layer's weights is cut (--tile), so that weights stay in a cache until all samples
/// of the batch have met them. A block has a panel of columns, and cuts the steps of its sums into bands: a band has
/// the weights of some steps, and all samples meet them before the next band. Sums that are not complete are passed
/// from band to band, as in a systolic array (Kung, "Why systolic architectures?", Computer 15(1), 1982), but in
/// memory. So a sum has the same order, and the same bits, as in a product that is not cut.
struct Bands {
  std::uint32_t steps = 0;    ///< of each sum
  std::uint32_t columns = 0;  ///< of the product
  std::uint32_t height = 0;   ///< steps of each band but the last; 0: the product is not cut

  /// Cuts a product whose weights have more than `bytes`. A band then has at most so many, of kBandBytesMin or more.
  /// `bytes` = 0: cuts nothing.
  GPUSOCK_FN static Bands of(std::uint64_t bytes, std::uint32_t steps, std::uint32_t columns) {
    if (bytes == 0 || sizeof(float) * steps * columns <= bytes) return {steps, columns, 0};
    const std::uint32_t width = columns < kPanelColumns ? columns : kPanelColumns;
    const std::uint64_t height = bytes / (sizeof(float) * width);
    return {steps, columns, height < steps ? static_cast<std::uint32_t>(height) : steps};
  }

  GPUSOCK_FN std::uint32_t panels() const { return (columns + kPanelColumns - 1) / kPanelColumns; }
  /// Bands of each panel.
  GPUSOCK_FN std::uint32_t count() const { return height == 0 ? 1 : (steps + height - 1) / height; }
  /// Sums that are passed on in a product of so many rows: each is written once, and read once.
  std::uint64_t passed(std::uint32_t rows) const { return std::uint64_t{rows} * columns * (count() - 1); }
  /// Blocks of a kernel that computes a product of so many rows.
  unsigned blocks(std::uint32_t rows) const { return height == 0 ? compute_blocks(rows, columns) : panels(); }
};

}  // namespace param_sync
