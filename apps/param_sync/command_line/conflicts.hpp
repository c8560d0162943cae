#pragma once
/// @file Which options do not go together.

#include "settings/config.hpp"

#include <string>

namespace param_sync {

/// Says what is wrong with the settings, as far as the options' own checks cannot see it: one sentence, with what to
/// do. Empty if nothing is. `names_nodes`: true if --nodes was given. Throws gpusock::Error for texts of options that
/// say nothing.
std::string conflict_in(const Config& config, bool names_nodes);

}  // namespace param_sync
