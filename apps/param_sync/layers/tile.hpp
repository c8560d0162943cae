#pragma once
/// @file The sizes of the tiles in which matrix products are computed (tile.cuh).

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync {

inline constexpr std::uint32_t kTileRows = 8;
inline constexpr std::uint32_t kTileColumns = 4;
inline constexpr unsigned kComputeThreads = 64;  ///< threads of a block that computes; each computes a tile at a time

/// Number of tiles of a rows x columns matrix.
GPUSOCK_FN inline std::uint32_t tile_count(std::uint32_t rows, std::uint32_t columns) {
  return (rows + kTileRows - 1) / kTileRows * ((columns + kTileColumns - 1) / kTileColumns);
}

/// Number of blocks for a rows x columns matrix, with one tile for each thread.
inline unsigned compute_blocks(std::uint32_t rows, std::uint32_t columns) {
  return (tile_count(rows, columns) + kComputeThreads - 1) / kComputeThreads;
}

}  // namespace param_sync
