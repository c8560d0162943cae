#pragma once
/// @file The memory of a table of rows into which kernels add (rows.cuh), and the host's calls. Include it in sources
/// that are compiled for the device, since it includes rows.cuh.

#include "param_sync/rows.cuh"

#include "gpusock/gpusock.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace param_sync {

/// A table of rows. One host thread at a time calls it, while no kernel uses the table.
class RowTable {
 public:
  /// Makes a table with room for at least `rows_max` rows of `columns` floats. Half as many cells more stay free, so
  /// that searches are short. The context outlives the table. Throws gpusock::Error (EINVAL, ENOMEM).
  RowTable(gpusock::Context& context, std::uint64_t rows_max, std::uint32_t columns)
      : columns_(columns),
        keys_(context, cells_for(rows_max, columns)),
        pairs_(context, keys_.size() * pairs_of_row()),
        refused_(context, 1) {
    clear();
  }

  /// The table in the form that kernels take.
  Rows rows() const { return {keys_.data(), pairs_.data(), refused_.data(), keys_.size(), columns_}; }

  /// Removes all rows.
  void clear() {
    for (auto* words : {&keys_, &pairs_, &refused_}) words->copy_in(std::vector<std::uint64_t>(words->size()));
  }

  /// Throws gpusock::Error (ENOSPC) if kernels could not add all rows.
  void check() const {
    const std::uint64_t refused = out_of(refused_)[0];
    if (refused == 0) return;
    throw gpusock::Error(
        ENOSPC, std::to_string(refused) + " rows could not be added to a table of " + std::to_string(keys_.size()) +
                    ": make it with room for all keys, and keys no larger than " + std::to_string(Rows::kKeyMax));
  }

  /// All rows.
  struct Sums {
    std::vector<std::uint64_t> keys;  ///< in ascending order
    std::vector<float> values;        ///< the columns of each key, key after key
  };
  /// Returns all keys and their sums. Throws as check() does.
  Sums sums() const {
    check();
    const std::vector<std::uint64_t> keys = out_of(keys_), pairs = out_of(pairs_);
    std::vector<std::size_t> cells(keys.size());
    std::iota(cells.begin(), cells.end(), 0);
    std::erase_if(cells, [&](std::size_t cell) { return keys[cell] == 0; });
    std::sort(cells.begin(), cells.end(), [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
    Sums sums;
    for (const std::size_t cell : cells) {
      sums.keys.push_back(keys[cell] - 1);
      for (std::uint32_t column = 0; column < columns_; ++column) {
        const auto pair = std::bit_cast<FloatPair>(pairs[cell * pairs_of_row() + column / 2]);
        sums.values.push_back(column % 2 == 0 ? pair.first : pair.second);
      }
    }
    return sums;
  }

 private:
  using Words = gpusock::DeviceBuffer<std::uint64_t>;

  std::uint32_t pairs_of_row() const { return Rows{.columns = columns_}.pairs_of_row(); }

  static std::vector<std::uint64_t> out_of(const Words& words) {
    std::vector<std::uint64_t> all(words.size());
    words.copy_out(all);
    return all;
  }

  static std::uint64_t cells_for(std::uint64_t rows_max, std::uint32_t columns) {
    constexpr std::uint64_t kRowsMax = std::uint64_t{1} << 32;
    if (rows_max == 0 || rows_max > kRowsMax || columns == 0) {
      throw gpusock::Error(EINVAL, "a table of " + std::to_string(rows_max) + " rows of " + std::to_string(columns) +
                                       " floats: take 1 to " + std::to_string(kRowsMax) + " rows of 1 or more");
    }
    return std::bit_ceil(rows_max + rows_max / 2);
  }

  std::uint32_t columns_;
  Words keys_, pairs_, refused_;
};

}  // namespace param_sync
