#pragma once
/// @file The commands on schedules: `param_sync schedule`, `simulate`, `predict` and `bench`.

#include <string>

namespace param_sync::commands {

/// True if the first argument of the program is one of these commands.
bool is_command(const std::string& word);

/// Runs the command, whose arguments begin with `argv[1]`, its name. Returns the exit status.
int run_command(int argc, char** argv);

// Each reads the arguments after its name, and returns the exit status.
int schedule_command(int argc, char** argv);
int simulate_command(int argc, char** argv);
int predict_command(int argc, char** argv);
int bench_command(int argc, char** argv);
int plot_command(int argc, char** argv);

}  // namespace param_sync::commands
