#pragma once
/// @file The schedules that the tests write.

#include "goal_run.hpp"

#include "param_sync/schedule/schedule.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace traces_test {

using param_sync::schedule::Schedule;
using TrafficByPair = std::map<std::pair<int, int>, Traffic>;

/// A schedule of the scheme, on links between all nodes. With `chunks` 0: the scheme's own number.
Schedule make(const std::string& scheme, int nodes, int chunks = 0, int credits = 0);

/// Schedules of all schemes for 2 to 8 nodes: with a number of chunks that the nodes divide, and one that they do not;
/// and with signals.
const std::vector<Schedule>& schedules();

std::string name_of(const Schedule& schedule);

/// What the schedule's ops send, if the tensor has so many floats: a signal has one byte.
TrafficByPair traffic_of(const Schedule& schedule, std::uint64_t floats);

}  // namespace traces_test
