#pragma once
/// @file Which node stopped a run: followed from op to op, along what each waits for.

#include "plan/exchange_plan.hpp"
#include "report/stall.hpp"

#include <vector>

namespace param_sync {

/// What the nodes that have reported (at least one) know together. A lane that waits does so for another lane of its
/// node, or for a message or room, which a lane of another node owes; that one waits, too, up to a node that is silent
/// or whose kernels have not computed what comes next.
Stall find_lane_stall(const ExchangePlan& plan, const std::vector<StepProgress>& reports, int nodes);

/// The message of one node, which knows only its own lanes.
std::string describe_lanes_alone(const ExchangePlan& plan, const StepProgress& report, double timeout_s);

}  // namespace param_sync
