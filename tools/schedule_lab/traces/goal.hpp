#pragma once
/// @file Schedules as GOAL (group operation assembly language; Hoefler, Siebert and Lumsdaine, 2009), in the text that
/// LogGOPSim's and ATLAHS's txt2bin read.

#include "traces/tasks.hpp"

#include <string>

namespace param_sync::traces {

/// The highest number of a processor in GOAL: LogGOPSim counts them in a byte.
inline constexpr int kProcessorMax = 254;

/// Returns the text: a block for each rank with a line for each task and one for each of its dependencies. A lane is a
/// processor (`cpu`) of its rank; lanes above kProcessorMax share those of other lanes. A rank without tasks computes
/// for 0 ns. Signals have 1 byte, because the LogGP model charges bytes from the second on, and none has no price.
std::string to_goal(const std::vector<Tasks>& ranks);

}  // namespace param_sync::traces
