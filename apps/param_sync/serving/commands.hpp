#pragma once
/// @file The commands on a model that answers: `param_sync serve` and `param_sync ask`.

namespace param_sync::serving {

/// Reads the arguments after the command's name, and returns the exit status.
int serve_command(int argc, char** argv);
int ask_command(int argc, char** argv);

}  // namespace param_sync::serving
