#include "commands/arguments.hpp"
#include "commands/commands.hpp"
#include "commands/measure.hpp"

#include "program/environment.hpp"
#include "program/run.hpp"
#include "tune/chooser.hpp"
#include "tune/fit.hpp"
#include "tune/open_mpi.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <thread>

namespace param_sync::commands {
namespace {

using gpusock::program::print;

struct PredictOptions {
  NetworkOptions network;
  int nodes = 4;
  std::vector<std::uint64_t> sizes_bytes = {1 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20};
  bool measures = false;
  bool unsteady = false;
  std::string link;
  bool exhaustive = false;
};

constexpr int kMeasuredNodesMax = 16;
constexpr int kMeasuredRepeats = 7;
constexpr auto kMeasuringMax = std::chrono::seconds(20);  // after that --measure gives up an unsteady machine

std::string quantity(double value, const char* unit, double highest) {
  return value < highest ? fmt::format("{:.4g} {}", value, unit) : "too fast to tell";
}

std::string error_text(const tune::FitError& error) {
  return fmt::format("mean {:.1f} %, at worst {:.1f} % ({})", 100 * error.mean, 100 * error.worst, error.worst_at);
}

/// Says what the model's choices lose according to measurements that it has not seen.
std::string text_of(const std::vector<tune::Regret>& regrets) {
  std::string text = fmt::format("  of these schemes the model would take, and a later round of medians of {} finds:\n",
                                 kMeasuredRepeats);
  for (const tune::Regret& regret : regrets) {
    text += fmt::format("    {}: {:.0f} % longer than the fastest{}\n", regret.taken, 100 * regret.share,
                        regret.taken == regret.best ? "" : fmt::format(" ({})", regret.best));
  }
  return text;
}

std::string text_of(const CheckedLinks& checked, const PredictOptions& options) {
  const MeasuredLinks& links = checked.links;
  const cost::NetworkModel& network = links.fit.network;
  return fmt::format(
      "measured on link {}, {} ranks of this process (least squares):\n"
      "  latency {:.4g} us, overhead of a message {:.4g} us, bandwidth {}, additions {};\n"
      "  {:.4g} us more for each run, which prices below contain and virtual times do not\n"
      "  error of the fit: {}\n"
      "  of schemes that it has not seen: {}\n"
      "  times of equal runs differ by {:.0f} % (the middle half of them), medians of the last two of {} rounds by "
      "{:.0f} %\n"
      "{}"
      "  to train with them: --scheme auto --prices {:.4g},{:.4g},{:.4g},{:.4g},1000 (the last one is not "
      "measured here, but by --prices measured)\n\n",
      options.link.empty() ? "auto" : options.link, options.nodes, network.latency_s * 1e6, network.overhead_s * 1e6,
      quantity(network.bandwidth * 8e-9, "Gb/s", 1e6), quantity(network.reduce_bandwidth * 1e-9, "GB/s", 1e6),
      links.fit.start_s * 1e6, error_text(links.fitted), error_text(links.others), 100 * links.scatter,
      checked.settled.rounds, 100 * checked.settled.drift, text_of(checked.regrets), network.latency_s * 1e6,
      network.overhead_s * 1e6, std::min(network.bandwidth * 8e-9, 1e6),
      std::min(network.reduce_bandwidth * 1e-9, 1e6));
}

/// Says why a reader should doubt the measurements. Empty if there is no reason.
std::string doubt_of(const CheckedLinks& links) {
  const auto processors = static_cast<double>(std::max(1u, std::thread::hardware_concurrency()));
  std::string doubt = tune::unsteadiness_of(links.settled);
  if (links.load > processors / 2) {
    doubt += fmt::format("{}{:.1f} processes ran on its {:.0f} processors in the minute before",
                         doubt.empty() ? "" : "; ", links.load, processors);
  }
  return doubt;
}

/// Measures the links. Throws if the machine stays unsteady, unless the user has given --unsteady.
CheckedLinks measured_links(const PredictOptions& options) {
  const auto link = gpusock::parse_link(options.link.empty() ? "auto" : options.link);
  CheckedLinks links = measure_links_again(options.nodes, link, kMeasuredRepeats,
                                           options.unsteady ? std::chrono::seconds(0) : kMeasuringMax);
  if (links.settled.is_steady() || options.unsteady) return links;
  throw std::runtime_error(fmt::format(
      "this machine is too unsteady to measure on: {}. Measure again when nothing else runs, with no more ranks "
      "(--nodes) than processors, or give the prices that you know (--latency, --overhead, --bandwidth, --reduce); "
      "--unsteady takes such times all the same",
      doubt_of(links)));
}

/// Prints prices by size and scheme.
void print_prices(const PredictOptions& options, const tune::Chooser& chooser, const tune::Fit& fit) {
  std::vector<std::string> schemes;
  for (const auto& priced : chooser.candidates()) {
    if (schemes.empty() || schemes.back() != priced.candidate.scheme) schemes.push_back(priced.candidate.scheme);
  }
  print(fmt::format("ms by the cost model (pipelines: the best of several numbers of chunks), {} nodes\n{:>8}",
                    options.nodes, ""));
  for (const std::string& scheme : schemes) print(column(scheme));
  for (const std::uint64_t size : options.sizes_bytes) {
    print(fmt::format("\n{:>8}", in_units(size)));
    for (const std::string& scheme : schemes) {
      double least_s = std::numeric_limits<double>::infinity();
      for (const auto& priced : chooser.candidates()) {
        if (priced.candidate.scheme != scheme) continue;
        least_s = std::min(least_s, fit.predicted_s(priced.costs, static_cast<double>(size)));
      }
      print(fmt::format(" {:>{}.4g}", least_s * 1e3, column_width(scheme)));
    }
  }
}

/// Prints, by size, which schedule each chooser takes, and how long that takes in virtual time.
void print_choices(const PredictOptions& options, const tune::Chooser& chooser, const cost::NetworkModel& model) {
  std::vector<std::string> choosers{"auto", "Open MPI's rules"};
  if (options.exhaustive) choosers.push_back("the best of all");
  print(fmt::format("\n\n{:>8}", ""));
  for (const std::string& name : choosers) print(fmt::format(" {:>36}", name));
  print(fmt::format("\n{:>8}", ""));
  for (std::size_t i = 0; i < choosers.size(); ++i)
    print(fmt::format(" {:>20} {:>4} {:>10}", "scheme", "chk", "virtual ms"));
  if (options.exhaustive) print("  regret in virtual time: auto   Open MPI");
  for (const std::uint64_t size : options.sizes_bytes) {
    const auto bytes = static_cast<double>(size);
    std::vector<tune::Candidate> taken{chooser.choose(bytes, model), tune::open_mpi_choice(options.nodes, bytes)};
    if (options.exhaustive) taken.push_back(chooser.best(bytes, model));
    print(fmt::format("\n{:>8}", in_units(size)));
    std::vector<double> times;
    for (const tune::Candidate& candidate : taken) {
      times.push_back(tune::simulated_s(candidate, options.nodes, bytes, model));
      print(fmt::format(" {:>20} {:>4} {:>10.4g}", candidate.scheme, candidate.chunks, times.back() * 1e3));
    }
    if (!options.exhaustive) continue;
    print(fmt::format("  {:>10.1f} % {:>8.1f} %", 100 * (times[0] / times[2] - 1), 100 * (times[1] / times[2] - 1)));
  }
  print("\n");
  print(fmt::format("virtual times, and regrets in them, are the model's own: param_sync bench --nodes {} measures\n",
                    options.nodes));
}

int run_predict(const PredictOptions& options) {
  tune::Fit fit;
  fit.network = options.network.model();
  if (options.measures) {
    const CheckedLinks links = measured_links(options);
    fit = links.links.fit;
    print(text_of(links, options));
    const std::string doubt = doubt_of(links);
    if (!doubt.empty()) fmt::print(stderr, "param_sync: these measurements are uncertain: {}\n", doubt);
  }
  const tune::Chooser chooser(options.nodes);
  print_prices(options, chooser, fit);
  print_choices(options, chooser, fit.network);
  return gpusock::program::kSuccess;
}

std::optional<int> parse_predict(int argc, char** argv, PredictOptions& options) {
  Arguments arguments(
      "Prices all-reduces by the cost model: milliseconds by size and scheme; what the chooser takes, and how long "
      "that takes in virtual time, beside Open MPI's fixed rules.");
  arguments.number("--nodes", options.nodes, "Nodes", 2, 64);
  arguments.bytes("--sizes", options.sizes_bytes, "Bytes of data, with commas", 1, kSizeMax);
  add_network(arguments, options.network);
  arguments.flag(
      "--measure", options.measures,
      "Measure latency and bandwidths instead, between ranks of this process, until they are steady, and say "
      "how well they fit");
  arguments.flag("--unsteady", options.unsteady, "Take what --measure finds first, also on a machine that is unsteady");
  arguments.choice("--link", options.link, gpusock::program::link_names(), "What is measured").shown_default("auto");
  arguments.flag("--exhaustive", options.exhaustive,
                 "Also try all candidates in virtual time, and say how much longer the choices take there (slow)");
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&options]() -> std::string {
    if (!options.measures && options.unsteady) return "--unsteady is for --measure";
    if (!options.measures) return options.link.empty() ? "" : "--link is for --measure";
    if (options.network.given()) return "--measure finds --bandwidth, --latency, --overhead and --reduce itself";
    if (options.nodes <= kMeasuredNodesMax) return "";
    return fmt::format("--measure runs all nodes in this process: --nodes {} at most", kMeasuredNodesMax);
  });
  return arguments.parse(argc, argv);
}

}  // namespace

int predict_command(int argc, char** argv) {
  PredictOptions options;
  if (const auto status = parse_predict(argc, argv, options)) return *status;
  return gpusock::program::run("param_sync", [&] { return run_predict(options); });
}

}  // namespace param_sync::commands
