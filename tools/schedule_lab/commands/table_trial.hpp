#pragma once
/// @file Times additions of many blocks into shared rows, without locks (param_sync/rows.cuh) and with locks.

#include <cstdint>
#include <string>
#include <vector>

namespace param_sync::commands {

struct TableTrialSettings {
  std::uint64_t additions = 1'000'000;  ///< row additions of all blocks together
  std::uint64_t rows = 1000;            ///< number of keys, each with one row
  std::uint32_t columns = 16;
  unsigned blocks = 8;
  int repeats = 9;
};

struct TableTime {
  std::string how;
  double median_s = 0;
  bool conserved = false;  ///< true if all sums are correct
};

/// Returns one time for each way to lock, measured in turn. Throws gpusock::Error.
std::vector<TableTime> try_tables(const TableTrialSettings& settings);

}  // namespace param_sync::commands
