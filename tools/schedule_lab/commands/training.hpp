#pragma once
/// @file `param_sync simulate --model`: training in virtual time.

#include "commands/arguments.hpp"

#include <cstdint>
#include <string>

namespace param_sync::commands {

/// The options of --model. Options that were not given are negative, 0 bytes, empty or false.
struct TrainingOptions {
  std::string model;
  std::string order;
  std::string dense;
  int batch = -1;
  int steps = -1;
  double teraflops = -1;
  double straggler = -1;
  double jitter_percent = -1;
  int seed = -1;
  std::uint64_t unit_bytes = 0;
  std::uint64_t fuse_bytes = 0;
  bool free_rebuild = false;
  bool lists_layers = false;
};

void add_training(Arguments& arguments, TrainingOptions& options);

/// Says what is wrong with the options; empty if nothing is. Options that need --model are wrong without it.
std::string problem_of_training(const TrainingOptions& options, const Source& source);

/// Prints a line for each order and, with --layers, how layers are exchanged. Returns the exit status. Throws Misuse.
int run_training(const TrainingOptions& options, const Source& source, const cost::NetworkModel& network);

}  // namespace param_sync::commands
