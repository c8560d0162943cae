#pragma once
/// @file Finds the node that stopped a run: follows from op to op what each one waits for.

#include "plan/exchange_plan.hpp"
#include "report/stall.hpp"

#include <vector>

namespace param_sync {

/// Finds the stall from the reports of one or more nodes. A lane waits for another lane of its node, or for a message
/// or room that a lane of another node owes. That lane waits, too, and so on, up to a node that has not reported, or
/// whose kernels have not computed what comes next.
Stall find_lane_stall(const ExchangePlan& plan, const std::vector<StepProgress>& reports, int nodes);

/// Returns the message of one node, which knows only its own lanes.
std::string describe_lanes_alone(const ExchangePlan& plan, const StepProgress& report, double timeout_s);

}  // namespace param_sync
