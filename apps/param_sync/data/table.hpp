#pragma once
/// @file Reads samples from a table: a CSV file, or a NumPy array of two dimensions.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace param_sync {

/// Rows of numbers, and what their last column says: the class of each.
struct Table {
  static constexpr std::size_t kClassesMax = 256;

  std::uint32_t columns = 0;         ///< numbers of a row, without its class
  std::vector<float> values;         ///< row after row
  std::vector<std::uint8_t> labels;  ///< by row: the number of its class
  std::vector<std::string> classes;  ///< their names: in ascending order if all are numbers, else by the alphabet

  std::size_t rows() const { return labels.size(); }
};

/// Reads a CSV file (RFC 4180) or a NumPy array (.npy), plain or compressed with gzip. Which one it is, its first bytes
/// say. The last column is the class, the others are numbers. In a CSV file the class may be any text, and a first line
/// without any number before the class has the columns' names. Classes that all are numbers are whole ones.
///
/// Throws gpusock::Error (EINVAL), which names the file and the line or row: the file is none of both, rows differ in
/// length, something is no finite number, or there are more than 256 classes, or less than two; (errno) it cannot be
/// opened.
Table read_table(const std::filesystem::path& file);

}  // namespace param_sync
