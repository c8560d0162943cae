#pragma once
/// @file The command line.

#include "settings/config.hpp"

#include <optional>
#include <string>
#include <vector>

namespace param_sync {

/// The settings of `argc`, `argv`. Nothing where there is nothing to run: `exit_status` then says how to end (0 after
/// --help, 2 on misuse, which has been explained on stderr).
std::optional<Config> parse_options(int argc, char** argv, int& exit_status);

/// Arguments that give a node process the same settings as `config`; its rank is added.
std::vector<std::string> to_arguments(const Config& config);

}  // namespace param_sync
