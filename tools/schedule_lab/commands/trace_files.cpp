#include "commands/trace_files.hpp"

#include "program/run.hpp"
#include "traces/chakra.hpp"
#include "traces/goal.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

namespace param_sync::commands {

void add_traces(Arguments& arguments, TraceOptions& options) {
  arguments.text("--goal", options.goal_file,
                 "Write it here for the simulators LogGOPSim and ATLAHS, as GOAL (docs/schedules.md); -: standard "
                 "output");
  arguments.text("--chakra", options.chakra_prefix,
                 "Write it for the simulator ASTRA-sim, as Chakra traces: rank 2's file is this name and .2.et");
  add_reduce(arguments, options.computing,
             "GB/s that a lane adds, for --goal and --chakra; of --plans also: copies in its own memory");
}

std::string problem_of_traces(const TraceOptions& options) {
  if (options.chakra_prefix == "-")
    return "--chakra writes a file for each rank, not standard output: give the first part of their names";
  if (!options.chakra_prefix.empty() && !traces::writes_chakra())
    return "--chakra: this program was built without protobuf: install libprotobuf-dev and protobuf-compiler, then "
           "build it again";
  return options.computing.given() && !options.given() ? "--reduce is for --goal and --chakra" : "";
}

std::vector<TraceFile> make_traces(const MakeTasks& make_tasks, std::uint64_t size_bytes, const TraceOptions& options) {
  if (!options.given()) return {};
  std::vector<traces::Tasks> tasks;
  try {
    tasks = make_tasks({size_bytes / sizeof(float), options.computing.model().reduce_bandwidth});
  } catch (const traces::WrongSize& error) {
    throw Misuse(fmt::format("--size {}: {}", size_bytes, error.what()));
  }
  std::vector<TraceFile> files;
  if (!options.goal_file.empty()) files.push_back({options.goal_file, traces::to_goal(tasks)});
  if (options.chakra_prefix.empty()) return files;
  for (std::string& bytes : traces::to_chakra(tasks)) {
    const std::size_t rank = files.size() - (options.goal_file.empty() ? 0 : 1);
    files.push_back({fmt::format("{}.{}.et", options.chakra_prefix, rank), std::move(bytes)});
  }
  return files;
}

namespace {

/// Removes a file that was written, but not standard output, a device, or what a user has made a link to.
void remove_written(const std::string& name) {
  std::error_code ignored;
  if (name == "-" || !std::filesystem::is_regular_file(std::filesystem::symlink_status(name, ignored))) return;
  std::filesystem::remove(name, ignored);
}

}  // namespace

void write_traces(const std::vector<TraceFile>& files) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    try {
      gpusock::program::write_file(files[i].name, files[i].bytes);
    } catch (...) {
      for (std::size_t written = 0; written < i; ++written) remove_written(files[written].name);
      throw;
    }
  }
}

}  // namespace param_sync::commands
