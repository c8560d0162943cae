#include "commands/arguments.hpp"
#include "commands/commands.hpp"

#include "program/run.hpp"
#include "simulate/simulation.hpp"

#include <fmt/format.h>

namespace param_sync::commands {
namespace {

using gpusock::program::print;

struct SimulateOptions {
  Source source;
  NetworkOptions network;
  std::uint64_t size_bytes = 100 << 20;
};

int run_simulate(SimulateOptions& options) {
  const auto [schedule, counts] = take_schedule(options.source);
  simulate::NetworkModel model = options.network.model();
  model.topology = options.source.topology;
  const auto size = static_cast<double>(options.size_bytes);
  const simulate::Timeline timeline = simulate::simulate(schedule, size / schedule.chunks, model);
  print(summary(schedule, counts) + "\n");
  print(fmt::format("{} bytes: {:.6g} ms in virtual time, {:.4g} GB/s\n", options.size_bytes, timeline.end_s * 1e3,
                    timeline.end_s > 0 ? size / timeline.end_s * 1e-9 : 0.0));
  return gpusock::program::kSuccess;
}

std::optional<int> parse_simulate(int argc, char** argv, SimulateOptions& options) {
  Arguments arguments("Runs a schedule in virtual time: how long it takes on these links.");
  add_source(arguments, options.source, true);
  arguments.bytes("--size", options.size_bytes, "Bytes of data", 1, kSizeMax);
  add_network(arguments, options.network);
  return arguments.parse(argc, argv);
}

}  // namespace

int simulate_command(int argc, char** argv) {
  SimulateOptions options;
  if (const auto status = parse_simulate(argc, argv, options)) return *status;
  return gpusock::program::run("param_sync", [&] { return run_simulate(options); });
}

}  // namespace param_sync::commands
