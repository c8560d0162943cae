#pragma once
/// @file The commands on schedules: `param_sync schedule`, `simulate`, `predict`, `bench` and `plot`.

#include <string>

namespace param_sync::commands {

/// True if `word`, the first argument of the program, is one of these commands.
bool is_command(const std::string& word);

/// Runs the command that `argv[1]` names. Its arguments follow. Returns the exit status.
int run_command(int argc, char** argv);

// Each command reads the arguments after its name, and returns the exit status.
int schedule_command(int argc, char** argv);
int simulate_command(int argc, char** argv);
int predict_command(int argc, char** argv);
int bench_command(int argc, char** argv);
int plot_command(int argc, char** argv);

}  // namespace param_sync::commands
