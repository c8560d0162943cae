#pragma once
/// @file Reads IDX files, the format of MNIST and its relatives: bytes with one, two or three dimensions.

#include <cstdint>
#include <filesystem>
#include <vector>

namespace param_sync {

/// The contents of an IDX file of unsigned bytes.
struct IdxArray {
  std::vector<std::uint32_t> shape;  ///< items, then (for images) rows and columns
  std::vector<std::uint8_t> bytes;   ///< row after row; as many as the product of `shape`

  std::size_t items() const { return shape.front(); }
  std::size_t item_bytes() const { return bytes.size() / shape.front(); }
};

/// Returns the shape that such a file claims in its header, and reads no more than that. Throws as read_idx().
std::vector<std::uint32_t> read_idx_shape(const std::filesystem::path& file, std::size_t dimensions);

/// Reads a plain or gzip-compressed IDX file that must have `dimensions` dimensions (1 to 3). Throws gpusock::Error,
/// which names the file, what was expected and what to do, if the file cannot be opened, is not IDX of unsigned bytes,
/// is truncated, is longer than its header says, or holds more than 1 GiB.
IdxArray read_idx(const std::filesystem::path& file, std::size_t dimensions);

}  // namespace param_sync
