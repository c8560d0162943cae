#include "schedule_command.hpp"

#include "program/arguments.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"
#include "schedule/check.hpp"
#include "schedule/file.hpp"
#include "schedule/schemes.hpp"
#include "schedule/topology.hpp"
#include "simulate/draw.hpp"
#include "simulate/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
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
  schedule::Request request;
};

struct ScheduleOptions {
  Source source;
  std::string json_file;
  std::string svg_file;
};

struct SimulateOptions {
  Source source;
  std::uint64_t size_bytes = 100 << 20;
  double gigabits = 10;
  double latency_us = 50;
  double overhead_us = 1;
  double reduce_gigabytes = 10;
};

void add_source(Arguments& arguments, Source& source) {
  schedule::Request& request = source.request;
  arguments.choice("--scheme", source.scheme, schedule::scheme_names(), "How data moves");
  arguments.text("--schedule", source.file,
                 "A schedule that somebody wrote (docs/schedules.md), instead; -: standard input");
  arguments.number("--nodes", request.nodes, "Nodes that have data", 1, schedule::kNodesMax);
  arguments.number("--chunks", request.chunks, "Parts of the data", 1, schedule::kChunksMax)
      .shown_default("the scheme's");
  arguments.number("--group-size", request.group_size, "Nodes of a group (hierarchical)", 1, schedule::kNodesMax);
  arguments.number("--stripes", request.stripes, "Trees (splitstream)", 1, 64);
  arguments.number("--lanes", request.lanes, "Rings side by side (ring:segmented)", 1, 64);
  arguments.number("--summation-nodes", request.summation_nodes, "Nodes that only sum (byteps)", 0,
                   schedule::kNodesMax);
  arguments.text("--topology", source.topology_file, "Links and bandwidths (docs/schedules.md); needed by blink");
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&]() -> std::string {
    if (source.scheme.empty() == source.file.empty()) return "give either --scheme or --schedule";
    if (source.scheme == "blink" && source.topology_file.empty()) return "--scheme blink needs --topology";
    if (source.file == "-" && source.topology_file == "-") return "only one file can be standard input";
    return "";
  });
}

/// The schedule, and what the checker counted.
std::pair<Schedule, Counts> take_schedule(Source& source) {
  if (!source.topology_file.empty()) {
    source.topology = schedule::topology_from_json(schedule::read_text(source.topology_file));
    source.request.topology = &*source.topology;
    if (source.scheme == "blink") source.request.nodes = source.topology->nodes();
  }
  Schedule taken;
  if (source.file.empty()) {
    try {
      taken = schedule::generate(source.scheme, source.request);
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

int run_schedule(ScheduleOptions& options) {
  const auto [schedule, counts] = take_schedule(options.source);
  const std::string about = summary(schedule, counts);
  if (!options.json_file.empty()) write(options.json_file, to_json(schedule));
  if (!options.svg_file.empty()) write(options.svg_file, simulate::draw(schedule, about));
  if (options.json_file == "-" || options.svg_file == "-") return gpusock::program::kSuccess;
  print(about + "\n");
  if (options.json_file.empty() && options.svg_file.empty()) print(listing(schedule, counts));
  print("the checker finds it right\n");
  return gpusock::program::kSuccess;
}

int run_simulate(SimulateOptions& options) {
  const auto [schedule, counts] = take_schedule(options.source);
  simulate::NetworkModel model;
  model.latency_s = options.latency_us * 1e-6;
  model.overhead_s = options.overhead_us * 1e-6;
  model.bandwidth = options.gigabits * 1e9 / 8;
  model.reduce_bandwidth = options.reduce_gigabytes * 1e9;
  model.topology = options.source.topology;
  const auto size = static_cast<double>(options.size_bytes);
  const simulate::Timeline timeline = simulate::simulate(schedule, size / schedule.chunks, model);
  print(summary(schedule, counts) + "\n");
  print(fmt::format("{} bytes: {:.6g} ms in virtual time, {:.4g} GB/s\n", options.size_bytes, timeline.end_s * 1e3,
                    timeline.end_s > 0 ? size / timeline.end_s * 1e-9 : 0.0));
  return gpusock::program::kSuccess;
}

std::optional<int> parse_schedule(int argc, char** argv, ScheduleOptions& options) {
  Arguments arguments(
      "Makes the schedule of a scheme, or takes one from a file; checks it and prints, writes or draws it.");
  add_source(arguments, options.source);
  arguments.text("--json", options.json_file, "Write it here (docs/schedules.md); -: standard output");
  arguments.text("--svg", options.svg_file, "Draw it here: ranks down, time across, an arrow for each message");
  arguments.check([&]() -> std::string {
    return options.json_file == "-" && options.svg_file == "-" ? "only one of --json and --svg can be standard output"
                                                               : "";
  });
  return arguments.parse(argc, argv);
}

std::optional<int> parse_simulate(int argc, char** argv, SimulateOptions& options) {
  constexpr std::uint64_t kSizeMax = std::uint64_t{1} << 44;
  Arguments arguments("Runs a schedule in virtual time: how long it takes on these links.");
  add_source(arguments, options.source);
  arguments.bytes("--size", options.size_bytes, "Bytes of data", 1, kSizeMax);
  arguments.number("--bandwidth", options.gigabits, "Gb/s of each rank, each way; with --topology: of no use", 1e-3,
                   1e6);
  arguments.number("--latency", options.latency_us, "Microseconds of a message's way", 0.0, 1e9);
  arguments.number("--overhead", options.overhead_us, "Microseconds that each message keeps a port", 0.0, 1e9);
  arguments.number("--reduce", options.reduce_gigabytes, "GB/s that a lane adds", 1e-3, 1e6);
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

bool is_schedule_command(const std::string& word) { return word == "schedule" || word == "simulate"; }

int run_schedule_command(int argc, char** argv) {
  if (std::string("schedule") == argv[1]) {
    return parse_and_run<ScheduleOptions>(argc, argv, parse_schedule, run_schedule);
  }
  return parse_and_run<SimulateOptions>(argc, argv, parse_simulate, run_simulate);
}

}  // namespace param_sync
