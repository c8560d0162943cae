#pragma once
/// @file The tasks of a plan of another program.

#include "foreign/plan.hpp"
#include "traces/tasks.hpp"

namespace param_sync::traces {

/// Returns how often a pipeline of the plan must run for each chunk of these data, for foreign::read_plan(). 0 if it
/// has no pipelines. Throws WrongSize if an iteration would have only a part of its data, or if there are too many, and
/// Error if it would move a part of a float.
int iterations_for(const foreign::Plan& plan, const Load& load);

/// Returns the tasks, by rank, of a plan that foreign::prove() proves, and that was read with its iterations_for()
/// these data. docs/foreign_plans.md says what a step becomes. Throws WrongSize if chunks of equal size need another
/// number of floats, and Error if a step goes through a switch, if the plan does not end, or if it has too many tasks
/// and dependencies.
std::vector<Tasks> tasks_of(const foreign::Plan& plan, const Load& load);

}  // namespace param_sync::traces
