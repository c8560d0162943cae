#pragma once
/// @file What Executor::prepare_resident() refuses before anything runs: arguments with which a lane would later fault,
/// wait for ever or sum wrongly.

#include "param_sync/executor/executor.hpp"

#include <span>
#include <vector>

namespace param_sync::executor {

/// Throws gpusock::Error (EINVAL), which names the tensor and the member, if an argument is invalid.
void check_resident(const std::vector<schedule::Schedule>& schedules, const Settings& settings,
                    std::span<const Exchanged> tensors, const Residence& residence);

}  // namespace param_sync::executor
