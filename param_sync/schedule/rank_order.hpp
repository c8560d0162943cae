#pragma once
/// @file In which order a schedule adds.

#include "param_sync/schedule/schedule.hpp"

namespace param_sync::schedule {

/// True if every sum that a worker ends with was made in the order of ranks: ((d0 + d1) + d2) + ..., where the two
/// sides of each addition may be swapped. Such schedules give the same bits as each other. Of an all_reduce, a
/// reduce_scatter or a parameter_server that check() accepts; of others false.
bool sums_in_rank_order(const Schedule& schedule);

}  // namespace param_sync::schedule
