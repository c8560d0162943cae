#pragma once
/// @file All that is checked, by file.

#include "checker/run.hpp"

#include <vector>

namespace gpusock::model {

std::vector<Case> litmus_cases();  ///< the checker itself: what a memory model must and must not allow
std::vector<Case> broken_cases();  ///< the same: each must fail
std::vector<Case> ring_cases();
std::vector<Case> queue_cases();
std::vector<Case> socket_cases();
std::vector<Case> poll_set_cases();
std::vector<Case> sleep_cases();
std::vector<Case> record_cases();
std::vector<Case> cost_cases();  ///< what calls read and write across the bus
std::vector<Case> param_sync_cases();
std::vector<Case> executor_cases();
std::vector<Case> nic_cases();
std::vector<Case> ticket_lock_cases();

}  // namespace gpusock::model
