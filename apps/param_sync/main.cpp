/// @file Trains a model across nodes whose kernels talk over gpusock. See README.md.

#include "tools/schedule_lab/commands/commands.hpp"
#include "tools/schedule_lab/commands/prices.hpp"
#include "checkpoint/checkpoint.hpp"
#include "command_line/options.hpp"
#include "plan/layer_schemes.hpp"
#include "plan/plan.hpp"
#include "runs/runs.hpp"
#include "serving/commands.hpp"
#include "training/node.hpp"
#include "program/run.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>

namespace {

/// Called before the training: if a file cannot be written, the program should fail before a long run.
void check_writable(const param_sync::Config& config) {
  for (const std::string& file :
       {config.json_file, config.series_file, config.trace_file, config.history_file, config.weights_file}) {
    if (file.empty() || file == "-") continue;
    std::error_code unknown;
    // A FIFO is not opened: its reader would see an early end.
    if (!std::filesystem::is_fifo(file, unknown)) {
      gpusock::program::JsonOutput{file};
    } else if (access(file.c_str(), W_OK) != 0) {
      throw gpusock::Error(errno, "cannot write " + file);
    }
  }
}

/// Throws if the settings do not fit the data, so that this is told once, before any node is started. A node of a
/// cluster does not check them: the cluster has done so.
void check_plan(param_sync::Config config) {
  if (config.control_fd >= 0) return;
  if (config.launch && config.launch->size > 0) config.nodes = config.launch->size;
  const std::string problem = param_sync::problem_of_plan(config);
  if (!problem.empty()) throw gpusock::program::Misuse(problem);
}

int run(param_sync::Config config) {
  if (config.json_file == "-") gpusock::program::JsonOutput{"-"};  // from here on other output goes to stderr
  check_plan(config);
  check_writable(config);
  if (config.measures_prices) {
    config.prices = param_sync::commands::measured_prices(config.nodes, config.link);
    gpusock::program::print_now(
        fmt::format("measured on this machine: --prices {}\n", param_sync::prices_text(config.prices)));
  }
  if (config.serial) return run_serial(config);
  if (!config.in_process && config.shares_gpu(param_sync::device_name())) {
    if (config.replicas > 1) {
      throw gpusock::program::Misuse(
          "--replicas is for nodes that may be lost apart, and those of one GPU run in one process: start each node on "
          "a GPU of its own, with --rank and --peers or by a launcher");
    }
    gpusock::program::print_now(
        fmt::format("{} nodes on one GPU run in one process, as with --in-process: processes would take turns there\n",
                    config.nodes));
    config.in_process = true;
  }
  if (config.in_process) return run_in_process(config);
  if (!config.join.empty()) return run_joined(config);
  if (config.rank >= 0) return run_rank(config);
  if (config.launch) return run_launched(config);
  return run_cluster(config, std::filesystem::read_symlink("/proc/self/exe").string());
}

using Checkpoints = std::map<std::filesystem::path, std::filesystem::file_time_type>;

/// Returns the checkpoints in the run's folder, and when each was written.
Checkpoints checkpoints_of(const param_sync::Config& config) {
  Checkpoints found;
  std::error_code unknown;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(config.checkpoint_folder, unknown)) {
    if (entry.path().extension() == param_sync::kCheckpointSuffix) found[entry.path()] = entry.last_write_time(unknown);
  }
  return found;
}

/// Says how to resume a failed run, if it has written a checkpoint. A run that could not begin would only fail again.
void tell_of_checkpoints(const param_sync::Config& config, const Checkpoints& before) {
  for (const auto& checkpoint : checkpoints_of(config)) {
    if (std::find(before.begin(), before.end(), checkpoint) != before.end()) continue;
    fmt::print(stderr, "param_sync: to go on from the last checkpoint, give the same arguments and --resume latest\n");
    return;
  }
}

/// Returns the rank whose message this is ("rank 3: "), if the user or a launcher starts single nodes; else nothing.
std::string label_of(const param_sync::Config& config) {
  const int rank = config.rank < 0 && config.launch ? config.launch->rank : config.rank;
  return rank < 0 ? "" : fmt::format("rank {}: ", rank);
}

/// Returns the status of `param_sync serve` or `ask`; nothing if the arguments are not one of these.
std::optional<int> run_serving_command(int argc, char** argv) {
  if (argc < 2) return std::nullopt;
  const std::string word = argv[1];
  if (word != "serve" && word != "ask") return std::nullopt;
  std::string name = "param_sync " + word;
  argv[1] = name.data();  // the name that --help shows
  return word == "serve" ? param_sync::serving::serve_command(argc - 1, argv + 1)
                         : param_sync::serving::ask_command(argc - 1, argv + 1);
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto status = run_serving_command(argc, argv)) return *status;
  if (argc > 1 && param_sync::commands::is_command(argv[1])) return param_sync::commands::run_command(argc, argv);
  int exit_status = 0;
  const auto config = param_sync::parse_options(argc, argv, exit_status);
  if (!config) return exit_status;
  const Checkpoints before = checkpoints_of(*config);
  return gpusock::program::run("param_sync", [&] {
    try {
      const int status = run(*config);
      if (status != 0 && config->control_fd < 0) tell_of_checkpoints(*config, before);
      return status;
    } catch (const param_sync::Interrupted&) {
      if (config->control_fd < 0) fmt::print(stderr, "param_sync: interrupted\n");
    } catch (const param_sync::NodeFailure& failure) {  // its message names the rank
      fmt::print(stderr, "param_sync: {}\n", failure.what());
    } catch (const gpusock::Error& error) {
      fmt::print(stderr, "param_sync: {}{}\n", label_of(*config), error.what());
    }
    if (config->control_fd < 0) tell_of_checkpoints(*config, before);
    return 1;
  });
}
