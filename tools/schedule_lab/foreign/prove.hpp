#pragma once
/// @file Proves that a plan is correct, or says by an example what is wrong with it.

#include "foreign/plan.hpp"

#include <cstdint>
#include <string>

namespace param_sync::foreign {

/// What was found out about a plan.
struct Proof {
  bool is_proved = false;
  std::string why;              ///< if it is refuted: the example
  std::uint64_t bytes_max = 0;  ///< the plan is proved for data of up to so many bytes; 0: for any number
  std::string in_a_row;     ///< why calls in a row, without a barrier of all ranks between them, fail; empty if they
                            ///< are proved, too, or the plan is refuted
  bool if_relaxed = false;  ///< true if a refuted plan were proved if relaxed signals ordered memory accesses
  std::uint64_t steps = 0;  ///< steps that ran, of one call
  std::uint64_t cells = 0;  ///< cells that steps read or wrote, of one call
};

/// Runs the plan with symbols instead of data. Proves, for any timing and any data:
/// - each output chunk has exactly the parts that the collective asks for, when the rank's blocks have ended;
/// - it ends, if a connection holds Plan::slots pieces of Plan::piece_bytes each; and all messages are received, all
/// signals are awaited;
/// - no two accesses of a cell race: if one of them writes, they are ordered by blocks, messages, counters, packets or
///   barriers.
/// One run is enough: blocks wait only for messages, room and each other, and each wait has one partner in all runs.
/// Where this would not hold (two blocks wait for one counter in no fixed order), throws Error. Throws Error, too, if
/// the plan is too large to be proved.
Proof prove(const Plan& plan);

}  // namespace param_sync::foreign
