#pragma once
/// @file Reads arrays in NumPy's format (.npy, versions 1 to 3; numpy.lib.format has the specification).

#include <cstddef>
#include <string_view>
#include <vector>

namespace param_sync {

/// An array of two dimensions.
struct NpyArray {
  std::size_t rows = 0, columns = 0;
  std::vector<double> values;  ///< row after row
};

/// True if a file that begins so is a NumPy array.
bool is_npy(std::string_view content);

/// Reads the content of a file. Throws std::invalid_argument, whose text says what is wrong: it is no array of two
/// dimensions of integers or floats in little-endian order, or it is not as long as its header says.
NpyArray read_npy(std::string_view content);

}  // namespace param_sync
