#pragma once
/// @file Compares GOAL with the schedule that it was written from: the ops, their order, and the data that they make.

#include "goal_run.hpp"

#include "param_sync/schedule/schedule.hpp"

#include <string>
#include <vector>

namespace traces_test {

/// Finds the lines of each of the schedule's ops, and looks whether what the op waits for (the op before it in its
/// lane, and `after`) is complete in every run before its first line starts. An op that sends is complete when the send
/// has started, any other when its last line has ended. Returns the first thing that is wrong, or an empty text.
std::string problem_of_order(const std::vector<GoalRank>& goal, const param_sync::schedule::Schedule& schedule);

/// Runs GOAL on numbers: a send reads its chunks when it starts, and what arrives is written, or added, when the rank
/// comes to it. Returns the first thing that is wrong with the schedule's result, or an empty text.
std::string problem_of_result(const std::vector<GoalRank>& goal, const param_sync::schedule::Schedule& schedule,
                              Ends ends, unsigned seed);

}  // namespace traces_test
