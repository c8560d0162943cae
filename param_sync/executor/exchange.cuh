#pragma once
/// @file A tensor that resident lanes exchange.

#include "param_sync/executor/run.cuh"
#include "param_sync/executor/traced_op.hpp"
#include "param_sync/executor/exchange_words.cuh"

#include <cstdint>

namespace param_sync::executor {

/// A tensor that is exchanged in every step, by a schedule of its own. Kernels have it by value, or in device memory.
struct Exchange {
  Run run;                 ///< its number is the number of the step, from 1
  int first_block = 0;     ///< blocks [first_block, first_block + run.lane_count) are its lanes
  bool all_apply = false;  ///< each rank gets the sums, and applies the update to all of them
  std::uint64_t ready_per_step = 1;
  int reservations = 0;                    ///< number of in-place reservations in run.reservations
  std::uint64_t leading = 0;               ///< number of lanes whose first op leads()
  bool gives_way = false;                  ///< true if the exchanges before it send first
  std::uint64_t credits = 0;               ///< how many other ranks may send to this one at a time; 0: any number
  std::uint64_t* credits_taken = nullptr;  ///< credits that all exchanges have taken
  ExchangeWords* words = nullptr;
  TracedOp* trace = nullptr;         ///< trace_of_block entries for each block, 0 at the beginning
  std::uint64_t trace_of_block = 0;  ///< entries for the ops of traced_steps steps
  std::uint64_t traced_steps = 0;
  std::uint64_t* positions = nullptr;  ///< mapped: by block, how many ops the block has completed in all steps
};

}  // namespace param_sync::executor
