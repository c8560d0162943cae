#include "schedule_command.hpp"

#include "executor/trial.hpp"
#include "program/arguments.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"
#include "schedule/check.hpp"
#include "schedule/file.hpp"
#include "schedule/rank_order.hpp"
#include "schedule/schemes.hpp"
#include "schedule/topology.hpp"
#include "simulate/draw.hpp"
#include "simulate/simulation.hpp"
#include "tune/chooser.hpp"
#include "tune/cost_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>

namespace param_sync {
namespace {

using gpusock::program::Arguments;
using gpusock::program::Misuse;
using gpusock::program::print;
using schedule::Counts;
using schedule::Schedule;

/// Where the schedule comes from: a scheme, or a file.
struct Source {
  std::string scheme;
  std::string file;
  std::string topology_file;
  std::optional<schedule::Topology> topology;
  schedule::Request given;  ///< 0 where nothing was
};

struct ScheduleOptions {
  Source source;
  std::string json_file;
  std::string svg_file;
  bool run = false;
  std::uint64_t size_bytes = 1 << 20;
  std::string link = "auto";
  bool deterministic = false;
};

struct BenchOptions {
  int nodes = 4;
  std::string scheme;
  std::string link = "auto";
  std::vector<std::uint64_t> sizes_bytes = {1 << 10, 64 << 10, 1 << 20, 16 << 20};
  int repeats = 9;
};

struct NetworkOptions {
  double gigabits = 10;
  double latency_us = 50;
  double overhead_us = 1;
  double reduce_gigabytes = 10;

  simulate::NetworkModel model() const {
    simulate::NetworkModel model;
    model.latency_s = latency_us * 1e-6;
    model.overhead_s = overhead_us * 1e-6;
    model.bandwidth = gigabits * 1e9 / 8;
    model.reduce_bandwidth = reduce_gigabytes * 1e9;
    return model;
  }
};

struct SimulateOptions {
  Source source;
  NetworkOptions network;
  std::uint64_t size_bytes = 100 << 20;
};

struct PredictOptions {
  NetworkOptions network;
  int nodes = 4;
  std::vector<std::uint64_t> sizes_bytes = {1 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20};
};

/// A setting of some schemes only. 0: not given.
struct SchemeSetting {
  const char* option;
  const char* scheme;
  int schedule::Request::*value;
  int max;
  const char* help;
};

const SchemeSetting kSchemeSettings[] = {
    {"--group-size", "hierarchical", &schedule::Request::group_size, schedule::kNodesMax, "Nodes of a group"},
    {"--stripes", "splitstream", &schedule::Request::stripes, 64, "Trees"},
    {"--lanes", "ring:segmented", &schedule::Request::lanes, 64, "Rings side by side"},
    {"--summation-nodes", "byteps", &schedule::Request::summation_nodes, schedule::kNodesMax, "Nodes that only sum"},
};

/// What is wrong with the source, or nothing. An option that would do nothing is wrong.
std::string problem_of_source(const Source& source, bool uses_topology) {
  if (source.scheme.empty() == source.file.empty()) return "give either --scheme or --schedule";
  const bool blink = source.scheme == "blink";
  if (blink && source.topology_file.empty()) return "--scheme blink needs --topology";
  if (!blink && !uses_topology && !source.topology_file.empty()) return "--topology is for --scheme blink";
  if (source.file == "-" && source.topology_file == "-") return "only one file can be standard input";
  if (!source.file.empty() && source.given.nodes != 0) return "--nodes is for --scheme: a file says how many there are";
  if (!source.file.empty() && source.given.chunks != 0)
    return "--chunks is for --scheme: a file says how many there are";
  for (const SchemeSetting& setting : kSchemeSettings) {
    if (source.given.*setting.value == 0 || source.scheme == setting.scheme) continue;
    return fmt::format("{} is for --scheme {}", setting.option, setting.scheme);
  }
  return "";
}

void add_source(Arguments& arguments, Source& source, bool uses_topology) {
  const schedule::Request defaults;
  schedule::Request& given = source.given;
  given = {0, 0, 0, 0, 0, 0, nullptr};
  arguments.choice("--scheme", source.scheme, schedule::scheme_names(), "How data moves");
  arguments.text("--schedule", source.file,
                 "A schedule that somebody wrote (docs/schedules.md), instead; -: standard input");
  arguments.number("--nodes", given.nodes, "Nodes that have data", 1, schedule::kNodesMax)
      .shown_default(fmt::format("{}, or the topology's", defaults.nodes));
  arguments.number("--chunks", given.chunks, "Parts of the data", 1, schedule::kChunksMax)
      .shown_default("the scheme's");
  for (const SchemeSetting& setting : kSchemeSettings) {
    const int least = std::min(1, defaults.*setting.value);
    arguments
        .number(setting.option, given.*setting.value, fmt::format("{} ({})", setting.help, setting.scheme), least,
                setting.max)
        .shown_default(std::to_string(defaults.*setting.value));
  }
  arguments.text("--topology", source.topology_file,
                 uses_topology ? "Links and bandwidths (docs/schedules.md), on which it runs; needed by blink"
                               : "Links and bandwidths (docs/schedules.md); for blink");
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&source, uses_topology] { return problem_of_source(source, uses_topology); });
}

/// What is asked for: defaults where nothing was given.
schedule::Request request_of(const Source& source) {
  schedule::Request request;
  if (source.topology) request.nodes = source.topology->nodes();
  if (source.given.nodes != 0) request.nodes = source.given.nodes;
  request.chunks = source.given.chunks;
  for (const SchemeSetting& setting : kSchemeSettings) {
    if (source.given.*setting.value != 0) request.*setting.value = source.given.*setting.value;
  }
  if (source.topology) request.topology = &*source.topology;
  return request;
}

/// The schedule, and what the checker counted.
std::pair<Schedule, Counts> take_schedule(Source& source) {
  if (!source.topology_file.empty()) {
    source.topology = schedule::topology_from_json(schedule::read_text(source.topology_file));
  }
  Schedule taken;
  if (source.file.empty()) {
    try {
      taken = schedule::generate(source.scheme, request_of(source));
    } catch (const schedule::Error& error) {
      throw Misuse(error.what());
    }
  } else {
    taken = schedule::from_json(schedule::read_text(source.file));
  }
  Counts counts = schedule::check(taken);
  return {std::move(taken), std::move(counts)};
}

std::string summary(const Schedule& schedule, const Counts& counts) {
  std::uint64_t messages = 0;
  for (const schedule::Edge& edge : counts.edges) messages += edge.messages;
  const std::string sums = schedule.workers == schedule.nodes()
                               ? ""
                               : fmt::format(", {} of them only sum", schedule.nodes() - schedule.workers);
  return fmt::format("{}: {} of {} chunks, {} ranks{}; {} rounds, {} messages, {} chunks sent, {} by the busiest rank",
                     schedule.scheme, to_string(schedule.result), schedule.chunks, schedule.nodes(), sums,
                     counts.rounds, messages, counts.chunks_sent(), counts.chunks_sent_max());
}

/// The ops of every lane, one a line.
std::string listing(const Schedule& schedule, const Counts& counts) {
  std::string text;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const schedule::Work& work = counts.ranks[rank];
    text += fmt::format("rank {}: sends {} chunks, receives {}, adds {}; memory: {} read, {} written\n", rank,
                        work.sent, work.received, work.reduced, work.reads, work.writes);
    const auto& lanes = schedule.ranks[rank].lanes;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      for (std::size_t index = 0; index < lanes[lane].size(); ++index) {
        std::string after;
        for (const schedule::OpRef& before : lanes[lane][index].after) {
          after += fmt::format("{} op {} of lane {}", after.empty() ? ", after" : " and", before.index, before.lane);
        }
        text += fmt::format("  lane {} op {}: {}{}\n", lane, index, describe(lanes[lane][index]), after);
      }
    }
  }
  return text;
}

void write(const std::string& file, const std::string& text) {
  if (file == "-") return print(text);
  errno = 0;
  std::ofstream out(file, std::ios::binary);
  out << text << std::flush;
  if (!out) throw schedule::Error(fmt::format("cannot write {}: {}", file, std::strerror(errno != 0 ? errno : EIO)));
}

std::string in_units(std::uint64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{}M", bytes >> 20);
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return fmt::format("{}K", bytes >> 10);
  return std::to_string(bytes);
}

/// Runs the schedule on sockets, and says how it went.
std::string run_on_sockets(const Schedule& schedule, const ScheduleOptions& options) {
  if (options.deterministic && !sums_in_rank_order(schedule)) {
    throw Misuse(fmt::format("{} does not add in the order of ranks for {} ranks. --scheme chain does", schedule.scheme,
                             schedule.workers));
  }
  executor::TrialSettings settings;
  settings.floats = options.size_bytes / sizeof(float);
  settings.link = gpusock::parse_link(options.link);
  const executor::Trial trial = executor::try_out(schedule, settings);
  if (options.deterministic && !trial.in_rank_order) throw schedule::Error("the sums are not those in rank order");
  return fmt::format("ran on {} floats, link {}: {:.3f} ms (median of {}); the results are right{}\n", settings.floats,
                     options.link, trial.median_s() * 1e3, trial.seconds.size(),
                     trial.in_rank_order ? ", bit for bit those of sums in rank order" : "");
}

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

int run_schedule(ScheduleOptions& options) {
  const auto [schedule, counts] = take_schedule(options.source);
  const std::string about = summary(schedule, counts);
  if (!options.json_file.empty()) write(options.json_file, to_json(schedule));
  if (!options.svg_file.empty()) write(options.svg_file, simulate::draw(schedule, about));
  if (options.json_file == "-" || options.svg_file == "-") return gpusock::program::kSuccess;
  print(about + "\n");
  if (options.json_file.empty() && options.svg_file.empty() && !options.run) print(listing(schedule, counts));
  print("the checker finds it right\n");
  if (options.run) print(run_on_sockets(schedule, options));
  return gpusock::program::kSuccess;
}

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

/// The chosen candidate, and its milliseconds in virtual time.
std::string chosen_text(const tune::Candidate& candidate, int nodes, double bytes,
                        const simulate::NetworkModel& model) {
  return fmt::format("{:>20} {:>4} {:>10.4g}", candidate.scheme, candidate.chunks,
                     tune::simulated_s(candidate, nodes, bytes, model) * 1e3);
}

int run_predict(const PredictOptions& options) {
  const simulate::NetworkModel model = options.network.model();
  const tune::Chooser chooser(options.nodes);
  std::vector<std::string> schemes;
  for (const auto& priced : chooser.candidates()) {
    if (schemes.empty() || schemes.back() != priced.candidate.scheme) schemes.push_back(priced.candidate.scheme);
  }
  print(fmt::format("ms by the cost model (pipelines: the best of several numbers of chunks), {} nodes\n{:>8}",
                    options.nodes, ""));
  for (const std::string& scheme : schemes)
    print(fmt::format(" {:>{}}", scheme, std::max<std::size_t>(10, scheme.size())));
  for (const std::uint64_t size : options.sizes_bytes) {
    print(fmt::format("\n{:>8}", in_units(size)));
    for (const std::string& scheme : schemes) {
      double least_s = std::numeric_limits<double>::infinity();
      for (const auto& priced : chooser.candidates()) {
        if (priced.candidate.scheme != scheme) continue;
        least_s = std::min(least_s, tune::predicted_s(priced.costs, static_cast<double>(size), model));
      }
      print(fmt::format(" {:>{}.4g}", least_s * 1e3, std::max<std::size_t>(10, scheme.size())));
    }
  }
  print(fmt::format("\n\n{:>8} {:>36} {:>36}\n{:>8}", "", "auto", "Open MPI's rule", ""));
  for (int i = 0; i < 2; ++i) print(fmt::format(" {:>20} {:>4} {:>10}", "scheme", "chk", "virtual ms"));
  for (const std::uint64_t size : options.sizes_bytes) {
    const auto bytes = static_cast<double>(size);
    print(fmt::format("\n{:>8} {} {}", in_units(size),
                      chosen_text(chooser.choose(bytes, model), options.nodes, bytes, model),
                      chosen_text(tune::open_mpi_choice(options.nodes, bytes), options.nodes, bytes, model)));
  }
  print("\n");
  return gpusock::program::kSuccess;
}

std::optional<int> parse_schedule(int argc, char** argv, ScheduleOptions& options) {
  Arguments arguments(
      "Makes the schedule of a scheme, or takes one from a file; checks it and prints, writes or draws it.");
  add_source(arguments, options.source, false);
  arguments.text("--json", options.json_file, "Write it here (docs/schedules.md); -: standard output");
  arguments.text("--svg", options.svg_file, "Draw it here: ranks down, time across, an arrow for each message");
  arguments.flag("--run", options.run,
                 "Run it, all ranks in this process, and compare the result with sums of doubles");
  arguments.bytes("--size", options.size_bytes, "Bytes of each rank's tensor, for --run", 4, std::uint64_t{1} << 30);
  arguments.choice("--link", options.link, {"auto", "p2p", "tcp", "fabric", "verbs"}, "What carries it, for --run");
  arguments.flag("--deterministic", options.deterministic,
                 "With --run: sums are in the order of ranks, bit for bit; else it is an error");
  arguments.check([&]() -> std::string {
    if (options.run && (options.json_file == "-" || options.svg_file == "-"))
      return "--run prints to standard output: write to a file";
    if (options.deterministic && !options.run) return "--deterministic is for --run";
    return options.json_file == "-" && options.svg_file == "-" ? "only one of --json and --svg can be standard output"
                                                               : "";
  });
  return arguments.parse(argc, argv);
}

std::optional<int> parse_bench(int argc, char** argv, BenchOptions& options) {
  Arguments arguments("Times sums of tensors over gpusock's sockets: each scheme and size, all ranks in this process.");
  arguments.number("--nodes", options.nodes, "Ranks", 1, 16);
  arguments.choice("--scheme", options.scheme, schedule::scheme_names(), "One scheme")
      .shown_default("all but blink, byteps");
  arguments.bytes("--sizes", options.sizes_bytes, "Bytes of a tensor, with commas", 4, std::uint64_t{1} << 30);
  arguments.choice("--link", options.link, {"auto", "p2p", "tcp", "fabric", "verbs"}, "What carries it");
  arguments.number("--repeats", options.repeats, "Timed runs", 1, 10000);
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&]() -> std::string { return options.scheme == "blink" ? "blink needs a topology" : ""; });
  return arguments.parse(argc, argv);
}

constexpr std::uint64_t kSizeMax = std::uint64_t{1} << 44;

void add_network(Arguments& arguments, NetworkOptions& network) {
  arguments.number("--bandwidth", network.gigabits, "Gb/s of each rank, each way; a topology's links have their own",
                   1e-3, 1e6);
  arguments.number("--latency", network.latency_us, "Microseconds from a message's leaving to its arrival", 0.0, 1e9);
  arguments.number("--overhead", network.overhead_us, "Microseconds that each message keeps a port", 0.0, 1e9);
  arguments.number("--reduce", network.reduce_gigabytes, "GB/s that a lane adds", 1e-3, 1e6);
}

std::optional<int> parse_simulate(int argc, char** argv, SimulateOptions& options) {
  Arguments arguments("Runs a schedule in virtual time: how long it takes on these links.");
  add_source(arguments, options.source, true);
  arguments.bytes("--size", options.size_bytes, "Bytes of data", 1, kSizeMax);
  add_network(arguments, options.network);
  return arguments.parse(argc, argv);
}

std::optional<int> parse_predict(int argc, char** argv, PredictOptions& options) {
  Arguments arguments(
      "Prices all-reduces by the cost model: milliseconds by size and scheme, what the chooser takes, and how long "
      "that "
      "takes in virtual time, beside Open MPI's fixed rule.");
  arguments.number("--nodes", options.nodes, "Nodes", 2, 64);
  arguments.bytes("--sizes", options.sizes_bytes, "Bytes of data, with commas", 1, kSizeMax);
  add_network(arguments, options.network);
  arguments.check(gpusock::program::problem_of_environment);
  return arguments.parse(argc, argv);
}

template <class Options, class Parse, class Work>
int parse_and_run(int argc, char** argv, Parse parse, Work work) {
  Options options;
  std::string name = std::string("param_sync ") + argv[1];
  argv[1] = name.data();
  if (const auto status = parse(argc - 1, argv + 1, options)) return *status;
  return gpusock::program::run("param_sync", [&] { return work(options); });
}

}  // namespace

bool is_schedule_command(const std::string& word) {
  return word == "schedule" || word == "simulate" || word == "predict" || word == "bench";
}

int run_schedule_command(int argc, char** argv) {
  if (std::string("schedule") == argv[1]) {
    return parse_and_run<ScheduleOptions>(argc, argv, parse_schedule, run_schedule);
  }
  if (std::string("predict") == argv[1]) {
    return parse_and_run<PredictOptions>(argc, argv, parse_predict, run_predict);
  }
  if (std::string("bench") == argv[1]) return parse_and_run<BenchOptions>(argc, argv, parse_bench, run_bench);
  return parse_and_run<SimulateOptions>(argc, argv, parse_simulate, run_simulate);
}

}  // namespace param_sync
