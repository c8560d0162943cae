#pragma once
/// @file Tells whether a schedule adds in the order of ranks.

#include "param_sync/schedule/schedule.hpp"

namespace param_sync::schedule {

/// True if every sum that a worker ends with was made in the order of ranks: ((d0 + d1) + d2) + ..., where the two
/// sides of each addition may be swapped. All such schedules give the same bits. False for results other than
/// all_reduce, reduce_scatter and parameter_server. check() must accept the schedule.
bool sums_in_rank_order(const Schedule& schedule);

}  // namespace param_sync::schedule
