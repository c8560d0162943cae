#include "commands/arguments.hpp"
#include "commands/commands.hpp"
#include "commands/training.hpp"

#include "program/run.hpp"
#include "simulate/simulation.hpp"
#include "simulate/training.hpp"

#include <fmt/format.h>

namespace param_sync::commands {
namespace {

using gpusock::program::print;

constexpr std::uint64_t kDefaultSize = 100 << 20;

struct SimulateOptions {
  Source source;
  NetworkOptions network;
  std::uint64_t size_bytes = 0;  // 0: not given
  TrainingOptions training;
};

int run_simulate(SimulateOptions& options) {
  if (!options.training.model.empty()) return run_training(options.training, options.source, options.network.model());
  const auto [schedule, counts] = take_schedule(options.source);
  cost::NetworkModel model = options.network.model();
  model.topology = options.source.topology;
  const std::uint64_t size_bytes = options.size_bytes != 0 ? options.size_bytes : kDefaultSize;
  const auto size = static_cast<double>(size_bytes);
  const simulate::Timeline timeline = simulate::simulate(schedule, size / schedule.chunks, model);
  print(summary(schedule, counts) + "\n");
  print(fmt::format("{} bytes: {:.6g} ms in virtual time, {:.4g} GB/s\n", size_bytes, timeline.end_s * 1e3,
                    timeline.end_s > 0 ? size / timeline.end_s * 1e-9 : 0.0));
  return gpusock::program::kSuccess;
}

std::string problem_of(const SimulateOptions& options) {
  const bool trains = !options.training.model.empty();
  if (!trains && options.source.scheme.empty() == options.source.file.empty())
    return "give --model, or either --scheme or --schedule";
  if (!trains && options.source.scheme == simulate::kHybrid)
    return "--scheme hybrid chooses for each layer of a model: give --model too";
  if (trains && options.size_bytes != 0) return "--size is not for --model, whose layers have sizes";
  return problem_of_training(options.training, options.source);
}

std::optional<int> parse_simulate(int argc, char** argv, SimulateOptions& options) {
  Arguments arguments(
      "Runs a schedule in virtual time: how long it takes on these links. With --model: training of that model, whose "
      "layers compute and exchange gradients.");
  std::vector<std::string> schemes = all_schemes();
  schemes.push_back(simulate::kHybrid);
  options.source.is_optional = true;
  add_source(arguments, options.source, true, schemes);
  arguments.bytes("--size", options.size_bytes, "Bytes of data", 1, kSizeMax).shown_default(in_units(kDefaultSize));
  add_network(arguments, options.network);
  add_training(arguments, options.training);
  arguments.check([&options] { return problem_of(options); });
  return arguments.parse(argc, argv);
}

}  // namespace

int simulate_command(int argc, char** argv) {
  SimulateOptions options;
  if (const auto status = parse_simulate(argc, argv, options)) return *status;
  return gpusock::program::run("param_sync", [&] { return run_simulate(options); });
}

}  // namespace param_sync::commands
