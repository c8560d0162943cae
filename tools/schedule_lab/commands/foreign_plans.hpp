#pragma once
/// @file `param_sync schedule --plans`: proves or refutes the plans of other programs.

#include "commands/trace_files.hpp"

#include <cstdint>
#include <string>

namespace param_sync::commands {

/// What is done with plans.
struct PlanOptions {
  std::string paths;             ///< files and folders, with commas between them
  std::string json_file;         ///< where the table is written as JSON; empty: nowhere
  TraceOptions traces;           ///< where the plan is written for simulators
  std::uint64_t size_bytes = 0;  ///< traces: bytes of the larger one of a rank's input and output
};

/// Reads the files, and prints a table of what was found out. Returns the exit status: that of success only if all
/// plans are proved. Throws Misuse if a path does not exist, if there is no file, or if traces are asked for and there
/// are several files or the size is none for the plan. Throws Error if traces are asked for and cannot be written.
int prove_foreign_plans(const PlanOptions& options);

}  // namespace param_sync::commands
