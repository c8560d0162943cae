#pragma once
/// @file The sizes of the tiles in which products of matrices are computed (tile.cuh).

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync {

inline constexpr std::uint32_t kTileRows = 8;
inline constexpr std::uint32_t kTileColumns = 4;
inline constexpr unsigned kComputeThreads = 64;  ///< of a block that computes: each makes a tile

/// Tiles of a rows x columns matrix.
GPUSOCK_FN inline std::uint32_t tile_count(std::uint32_t rows, std::uint32_t columns) {
  return (rows + kTileRows - 1) / kTileRows * ((columns + kTileColumns - 1) / kTileColumns);
}

/// Blocks that a rows x columns matrix is worth, one tile for each thread.
inline unsigned compute_blocks(std::uint32_t rows, std::uint32_t columns) {
  return (tile_count(rows, columns) + kComputeThreads - 1) / kComputeThreads;
}

}  // namespace param_sync
