#pragma once
/// @file The tasks of a schedule.

#include "traces/tasks.hpp"

namespace param_sync::traces {

/// Returns the tasks, by rank, of a schedule that check() accepts. Each op becomes up to three tasks, in this order: it
/// receives, computes, sends. A message travels as a whole, also if the schedule forwards it chunk by chunk. Throws
/// WrongSize if there are fewer floats than chunks, because a message could then be empty, and Error if the schedule
/// does not end.
std::vector<Tasks> tasks_of(const schedule::Schedule& schedule, const Load& load);

}  // namespace param_sync::traces
