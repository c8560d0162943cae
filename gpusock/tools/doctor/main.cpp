// gpusock-doctor: what this machine has, which link each peer gets, and what to fix. See docs/tools.md.
#include "gpusock/tools/doctor/probes.hpp"
#include "program/arguments.hpp"
#include "program/run.hpp"

int main(int argc, char** argv) {
  gpusock::program::Arguments arguments(
      "Says what this machine has, which link each kind of peer gets and why not a better one, and what fixes it.",
      "\nExit status: 0 all is well, 1 there is something to fix (a GPUSOCK_... variable, too), 2 misuse.");
  std::string json_file;
  arguments.json(json_file, "JSON instead of a page");
  if (const auto status = arguments.parse(argc, argv)) return *status;
  return gpusock::program::run("gpusock-doctor", [&] {
    const auto report = gpusock::doctor::examine(gpusock::doctor::Sources::of_this_machine());
    if (json_file.empty()) {
      gpusock::program::print(make_page(report));
    } else {
      gpusock::program::write_file(json_file, make_json(report));
    }
    return report.well() ? gpusock::program::kSuccess : gpusock::program::kFailure;
  });
}
