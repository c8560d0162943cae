#pragma once
/// @file What Executor::prepare_resident() refuses before anything runs: what would be a lane's fault, a wait for ever
/// or a wrong sum later.

#include "param_sync/executor/executor.hpp"

#include <span>
#include <vector>

namespace param_sync::executor {

/// Throws gpusock::Error (EINVAL) that names the tensor and the member.
void check_resident(const std::vector<schedule::Schedule>& schedules, const Settings& settings,
                    std::span<const Exchanged> tensors, const Residence& residence);

}  // namespace param_sync::executor
