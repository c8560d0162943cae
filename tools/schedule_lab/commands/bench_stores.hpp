#pragma once
/// @file `param_sync bench --owners`: pushes and pulls through a store, beside raw sockets and an all-reduce.

#include <cstdint>
#include <string>
#include <vector>

namespace param_sync::commands {

struct StoreBenchOptions {
  int nodes = 4;
  std::string link = "auto";
  std::vector<std::uint64_t> owners;       ///< how many ranks own a range; a line of the table for each
  std::vector<std::uint64_t> sizes_bytes;  ///< of a range; empty: 64 bytes to 1 MiB
  int pairs = 0;                           ///< of each worker in a round; 0: fewer of larger ranges
  int repeats = 9;
  std::string json_file;
};

/// Prints medians of interleaved rounds, and writes all rounds as JSON. Returns the exit status.
int bench_stores(const StoreBenchOptions& options);

}  // namespace param_sync::commands
