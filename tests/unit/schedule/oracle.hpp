#pragma once
/// @file Runs a schedule on numbers, with lanes in random order: what the checker says is compared with it. It shares
/// no code with the checker.

#include "param_sync/schedule/schedule.hpp"

#include <cstdint>
#include <string>

namespace schedule_test {

/// What went wrong in this run, or nothing. Sums are exact: 64-bit numbers that wrap.
std::string problem_of_run(const param_sync::schedule::Schedule& schedule, std::uint64_t seed);

/// The same for the result all_reduce or parameter_server, over several runs.
std::string problem_of_runs(const param_sync::schedule::Schedule& schedule, int runs);

}  // namespace schedule_test
