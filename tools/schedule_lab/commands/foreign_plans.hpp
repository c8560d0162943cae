#pragma once
/// @file `param_sync schedule --plans`: proves or refutes the plans of other programs.

#include <string>

namespace param_sync::commands {

/// Reads the files in `paths` (files and folders, with commas between them), and prints a table of what was found out.
/// Writes the table as JSON to `json_file`, if that is not empty. Returns the exit status: that of success only if all
/// plans are proved. Throws Misuse if a path does not exist, or if there is no file.
int prove_foreign_plans(const std::string& paths, const std::string& json_file);

}  // namespace param_sync::commands
