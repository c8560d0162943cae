#pragma once
/// @file The settings of a run that its nodes compare when they connect, and that a checkpoint keeps.

#include "data/dataset.hpp"
#include "plan/exchange_plan.hpp"
#include "plan/plan.hpp"
#include "report/failure.hpp"
#include "settings/config.hpp"

#include <cstdint>

namespace param_sync {

/// Returns the settings of a run that begins with step `first_step`. The plans must be made from `config` and `data`.
RunSettings run_settings(const Config& config, const Dataset& data, const Plan& plan, const ExchangePlan& exchange,
                         std::uint64_t first_step);

/// Returns the settings that a node must share which joins a run: those that do not depend on how many nodes there are.
RunSettings settings_to_join(const Config& config, const Dataset& data);

}  // namespace param_sync
