#pragma once
/// @file `param_sync schedule` and `param_sync simulate`: schedules made, checked, written, drawn, and run in virtual
/// time.

#include <string>

namespace param_sync {

/// True if the first argument of the program is one of these commands.
bool is_schedule_command(const std::string& word);

/// Runs the command, whose arguments begin with `argv[1]`, its name. Returns the exit status.
int run_schedule_command(int argc, char** argv);

}  // namespace param_sync
