// gpusock-bench: latency, bandwidth, connections and rates of a link beside its raw rival. See docs/benchmarks.md.
#include "options.hpp"
#include "report.hpp"
#include "serve.hpp"
#include "program/arguments.hpp"
#include "program/run.hpp"

#include <optional>

namespace {

/// What a server tells its clients about its device.
std::string describe_device() {
  const auto machine = bench::read_machine_facts(gpusock::Options::from_env().gpu);
  return (machine.device_kind == "gpu" ? "" : "CPU device, ") + machine.device_name;
}

void run(const bench::BenchOptions& options) {
  // Opens the file before it measures: a file that cannot be written should fail before a long run.
  std::optional<gpusock::program::JsonOutput> json;
  if (!options.json_file.empty()) json.emplace(options.json_file);
  const auto machine = bench::read_machine_facts(gpusock::Options::from_env().gpu);
  const auto result = bench::run_contest(options);
  gpusock::program::print(bench::make_table(options, machine, result));
  if (!json) return;
  json->write(bench::make_json(options, machine, result));
  json->close();
}

}  // namespace

int main(int argc, char** argv) {
  const bench::CommandLine line = bench::parse_command_line(argc, argv);
  if (!line.run) return line.exit_status;
  return gpusock::program::run("gpusock-bench", [&] {
    if (line.serve) {
      const bool served = bench::serve(line.server, describe_device());
      return served ? gpusock::program::kSuccess : gpusock::program::kFailure;
    }
    run(line.options);
    return gpusock::program::kSuccess;
  });
}
