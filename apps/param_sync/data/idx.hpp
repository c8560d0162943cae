#pragma once
/// @file Reads IDX files, the format of MNIST and its relatives: bytes with one, two or three dimensions.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <numeric>
#include <vector>

namespace param_sync {

/// The contents of an IDX file of unsigned bytes.
struct IdxArray {
  std::vector<std::uint32_t> shape;  ///< items, then (for images) rows and columns; of the file
  std::vector<std::uint8_t> bytes;   ///< row after row, of the items that were read

  std::size_t items() const { return shape.front(); }
  std::size_t item_bytes() const {
    return std::accumulate(shape.begin() + 1, shape.end(), std::size_t{1}, std::multiplies<>());
  }
};

/// Returns the shape that such a file claims in its header, and reads no more than that. Throws as read_idx().
std::vector<std::uint32_t> read_idx_shape(const std::filesystem::path& file, std::size_t dimensions);

/// Reads a plain or gzip-compressed IDX file that must have `dimensions` dimensions (1 to 3). Throws gpusock::Error,
/// which names the file, what was expected and what to do, if the file cannot be opened, is not IDX of unsigned bytes,
/// is truncated, is longer than its header says, or holds more than 1 GiB. `items_max`: reads only so many items, and
/// does not look at what follows them; 0: all.
IdxArray read_idx(const std::filesystem::path& file, std::size_t dimensions, std::size_t items_max = 0);

}  // namespace param_sync
