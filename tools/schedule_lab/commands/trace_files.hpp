#pragma once
/// @file `param_sync schedule --goal` and `--chakra`: files for other simulators.

#include "commands/arguments.hpp"

#include "traces/tasks.hpp"

#include <functional>
#include <string>
#include <vector>

namespace param_sync::commands {

/// Which files are written. Empty: none.
struct TraceOptions {
  std::string goal_file;
  std::string chakra_prefix;  ///< rank R's file is this name with ".R.et" after it, as ASTRA-sim wants it
  NetworkOptions computing;   ///< only how fast a lane adds

  /// True if there is a file to write.
  bool given() const { return !goal_file.empty() || !chakra_prefix.empty(); }
};

/// A file that is not yet written.
struct TraceFile {
  std::string name;
  std::string bytes;
};

void add_traces(Arguments& arguments, TraceOptions& options);

/// Says what is wrong with the options. Empty if nothing is.
std::string problem_of_traces(const TraceOptions& options);

/// Makes the tasks of all ranks. May throw traces::WrongSize.
using MakeTasks = std::function<std::vector<traces::Tasks>(const traces::Load& load)>;

/// Makes the files for a tensor of `size_bytes`. Throws Misuse if the tasks cannot be made for this size.
std::vector<TraceFile> make_traces(const MakeTasks& make_tasks, std::uint64_t size_bytes, const TraceOptions& options);

/// Writes them. If one cannot be written, removes those before it, because a simulator needs all. Throws
/// gpusock::Error.
void write_traces(const std::vector<TraceFile>& files);

}  // namespace param_sync::commands
