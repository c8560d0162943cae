#pragma once
/// @file The command line.

#include "settings/config.hpp"

#include <optional>
#include <string>
#include <vector>

namespace param_sync {

/// Returns the settings that the arguments give, or nothing if there is nothing to run. In that case `exit_status` is
/// the status to exit with: 0 after --help, 2 after misuse, which has been explained on stderr.
std::optional<Config> parse_options(int argc, char** argv, int& exit_status);

/// Returns arguments that give a node's process the same settings as `config`. The caller adds the rank.
std::vector<std::string> to_arguments(const Config& config);

}  // namespace param_sync
