#include "commands/arguments.hpp"
#include "commands/commands.hpp"

#include "executor/trial.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"

#include <fmt/format.h>

namespace param_sync::commands {
namespace {

using gpusock::program::print;

struct BenchOptions {
  int nodes = 4;
  std::string scheme;
  std::string link = "auto";
  std::vector<std::uint64_t> sizes_bytes = {1 << 10, 64 << 10, 1 << 20, 16 << 20};
  int repeats = 9;
};

/// Medians by size and scheme.
int run_bench(const BenchOptions& options) {
  schedule::Request request;
  request.nodes = options.nodes;
  std::vector<std::string> schemes;
  for (const std::string& scheme : schedule::scheme_names()) {
    if (options.scheme.empty() ? scheme != "blink" && scheme != "byteps" : scheme == options.scheme)
      schemes.push_back(scheme);
  }
  print(fmt::format("ms for a sum of all ranks' tensors (median of {}), {} ranks in this process, link {}\n{:>8}",
                    options.repeats, options.nodes, options.link, ""));
  for (const std::string& scheme : schemes)
    print(fmt::format(" {:>{}}", scheme, std::max<std::size_t>(10, scheme.size())));
  for (const std::uint64_t size : options.sizes_bytes) {
    print(fmt::format("\n{:>8}", in_units(size)));
    for (const std::string& scheme : schemes) {
      executor::TrialSettings settings;
      settings.floats = size / sizeof(float);
      settings.link = gpusock::parse_link(options.link);
      settings.repeats = options.repeats;
      const executor::Trial trial = executor::try_out(schedule::generate(scheme, request), settings);
      print(fmt::format(" {:>{}.3f}", trial.median_s() * 1e3, std::max<std::size_t>(10, scheme.size())));
    }
  }
  print("\n");
  return gpusock::program::kSuccess;
}

std::optional<int> parse_bench(int argc, char** argv, BenchOptions& options) {
  Arguments arguments("Times sums of tensors over gpusock's sockets: each scheme and size, all ranks in this process.");
  arguments.number("--nodes", options.nodes, "Ranks", 1, 16);
  arguments.choice("--scheme", options.scheme, schedule::scheme_names(), "One scheme")
      .shown_default("all but blink, byteps");
  arguments.bytes("--sizes", options.sizes_bytes, "Bytes of a tensor, with commas", 4, std::uint64_t{1} << 30);
  arguments.choice("--link", options.link, kLinks, "What carries it");
  arguments.number("--repeats", options.repeats, "Timed runs", 1, 10000);
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&]() -> std::string { return options.scheme == "blink" ? "blink needs a topology" : ""; });
  return arguments.parse(argc, argv);
}

}  // namespace

int bench_command(int argc, char** argv) {
  BenchOptions options;
  if (const auto status = parse_bench(argc, argv, options)) return *status;
  return gpusock::program::run("param_sync", [&] { return run_bench(options); });
}

}  // namespace param_sync::commands
