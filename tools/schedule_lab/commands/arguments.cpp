#include "commands/arguments.hpp"

#include "program/environment.hpp"
#include "param_sync/schedule/file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace param_sync::commands {
namespace {

using schedule::Counts;
using schedule::Schedule;

/// The option for a setting that only some schemes use. Its value is 0 if it is not given.
struct SchemeSetting {
  const char* option;
  schedule::Setting setting;
  int schedule::Request::*value;
  int min;
  int max;
  const char* help;
};

const SchemeSetting kSchemeSettings[] = {
    {"--group-size", schedule::Setting::group_size, &schedule::Request::group_size, 1, schedule::kNodesMax,
     "Nodes of a group"},
    {"--stripes", schedule::Setting::stripes, &schedule::Request::stripes, 1, 64, "Trees"},
    {"--lanes", schedule::Setting::lanes, &schedule::Request::lanes, 1, 64, "Rings side by side"},
    {"--summation-nodes", schedule::Setting::summation_nodes, &schedule::Request::summation_nodes, 0,
     schedule::kNodesMax, "Nodes that only sum"},
    {"--credits", schedule::Setting::credits, &schedule::Request::credits, 1, schedule::kNodesMax - 1,
     "Nodes that send to one owner at a time"},
};

std::string schemes_text(schedule::Setting setting, const char* between) {
  return fmt::format("{}", fmt::join(schedule::schemes_with(setting), between));
}

/// Says what is wrong with the source; empty if nothing is. An option that would do nothing is wrong.
std::string problem_of_source(const Source& source, bool uses_topology) {
  if (!source.is_optional && source.scheme.empty() == source.file.empty()) return "give either --scheme or --schedule";
  const bool needs_topology = schedule::uses(source.scheme, schedule::Setting::topology);
  if (needs_topology && source.topology_file.empty()) return "--scheme " + source.scheme + " needs --topology";
  if (!needs_topology && !uses_topology && !source.topology_file.empty()) {
    return fmt::format("--topology is for --scheme {}", schemes_text(schedule::Setting::topology, " and "));
  }
  if (source.file == "-" && source.topology_file == "-") return "only one file can be standard input";
  if (!source.file.empty() && source.given.nodes != 0) return "--nodes is for --scheme: a file says how many there are";
  if (!source.file.empty() && source.given.chunks != 0)
    return "--chunks is for --scheme: a file says how many there are";
  for (const SchemeSetting& setting : kSchemeSettings) {
    if (source.given.*setting.value == 0 || schedule::uses(source.scheme, setting.setting)) continue;
    return fmt::format("{} is for --scheme {}", setting.option, schemes_text(setting.setting, " and "));
  }
  return "";
}

}  // namespace

std::vector<std::string> all_schemes() {
  std::vector<std::string> all = schedule::scheme_names();
  all.insert(all.end(), schedule::factor_scheme_names().begin(), schedule::factor_scheme_names().end());
  return all;
}

void add_source(Arguments& arguments, Source& source, bool uses_topology, const std::vector<std::string>& schemes) {
  const schedule::Request defaults;
  schedule::Request& given = source.given;
  given = {0, 0, 0, 0, 0, 0, 0, 0, nullptr};
  arguments.choice("--scheme", source.scheme, schemes, "How data moves");
  arguments.text("--schedule", source.file,
                 "A schedule that somebody wrote (docs/schedules.md), instead; -: standard input");
  arguments.number("--nodes", given.nodes, "Nodes that have data", 1, schedule::kNodesMax)
      .shown_default(fmt::format("{}, or the topology's", defaults.nodes));
  arguments.number("--chunks", given.chunks, "Parts of the data", 1, schedule::kChunksMax)
      .shown_default("the scheme's");
  for (const SchemeSetting& setting : kSchemeSettings) {
    const int without = defaults.*setting.value;
    arguments
        .number(setting.option, given.*setting.value,
                fmt::format("{} ({})", setting.help, schemes_text(setting.setting, ", ")), setting.min, setting.max)
        .shown_default(without < setting.min ? "any number" : std::to_string(without));
  }
  arguments.text("--topology", source.topology_file,
                 fmt::format("Links and bandwidths (docs/schedules.md){} {}",
                             uses_topology ? ", on which it runs; needed by" : "; for",
                             schemes_text(schedule::Setting::topology, ", ")));
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&source, uses_topology] { return problem_of_source(source, uses_topology); });
}

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

/// Calls `read`. Its errors then begin with the name of the file.
template <class Read>
void in_file(const std::string& file, Read read) {
  try {
    read();
  } catch (const schedule::Error& error) {
    throw schedule::Error(fmt::format("{}: {}", file == "-" ? "standard input" : file, error.what()));
  }
}

/// Throws Misuse if --nodes and the topology disagree.
void check_nodes(const Source& source) {
  const int nodes = source.topology->nodes();
  if (source.given.nodes == 0 || source.given.nodes == nodes) return;
  throw Misuse(fmt::format("--nodes {}: the topology in {} has {} nodes; leave --nodes out", source.given.nodes,
                           source.topology_file, nodes));
}

std::pair<Schedule, Counts> take_schedule(Source& source) {
  if (!source.topology_file.empty()) {
    const std::string text = schedule::read_text(source.topology_file);
    in_file(source.topology_file, [&] { source.topology = schedule::topology_from_json(text); });
    check_nodes(source);
  }
  Schedule taken;
  Counts counts;
  if (source.file.empty()) {
    try {
      taken = schedule::generate(source.scheme, request_of(source));
    } catch (const schedule::Error& error) {
      throw Misuse(error.what());
    }
    counts = schedule::check(taken);
  } else {
    const std::string text = schedule::read_text(source.file);
    in_file(source.file, [&] {
      taken = schedule::from_json(text);
      counts = schedule::check(taken);
      taken.scheme = schedule::printable(taken.scheme);
    });
  }
  return {std::move(taken), std::move(counts)};
}

std::string summary(const Schedule& schedule, const Counts& counts) {
  std::uint64_t messages = 0;
  for (const schedule::Edge& edge : counts.edges) messages += edge.messages;
  const std::string sums = schedule.workers == schedule.nodes()
                               ? ""
                               : fmt::format(", {} of them only sum", schedule.nodes() - schedule.workers);
  return fmt::format("{}: {} of {} chunks, {} ranks{}; depth {}, {} messages, {} chunks sent, {} by the busiest rank",
                     schedule.scheme, to_string(schedule.result), schedule.chunks, schedule.nodes(), sums, counts.depth,
                     messages, counts.chunks_sent(), counts.chunks_sent_max());
}

std::string problem_of_floats(const std::string& option, std::uint64_t bytes) {
  if (bytes % sizeof(float) == 0) return "";
  return fmt::format("{} {}: a tensor is of floats, {} bytes each: give a multiple of {}", option, bytes, sizeof(float),
                     sizeof(float));
}

std::string in_units(std::uint64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{}M", bytes >> 20);
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return fmt::format("{}K", bytes >> 10);
  return std::to_string(bytes);
}

std::size_t column_width(const std::string& title) { return std::max<std::size_t>(10, title.size()); }

std::string column(const std::string& title) { return fmt::format(" {:>{}}", title, column_width(title)); }

cost::NetworkModel NetworkOptions::model() const {
  cost::NetworkModel model;
  if (latency_us >= 0) model.latency_s = latency_us * 1e-6;
  if (overhead_us >= 0) model.overhead_s = overhead_us * 1e-6;
  if (gigabits >= 0) model.bandwidth = gigabits * 1e9 / 8;
  if (reduce_gigabytes >= 0) model.reduce_bandwidth = reduce_gigabytes * 1e9;
  return model;
}

void add_reduce(Arguments& arguments, NetworkOptions& network, const std::string& help) {
  arguments.number("--reduce", network.reduce_gigabytes, help, 1e-3, 1e6).shown_default("10");
}

void add_network(Arguments& arguments, NetworkOptions& network) {
  arguments
      .number("--bandwidth", network.gigabits, "Gb/s of each rank, each way; a topology's links have their own", 1e-3,
              1e6)
      .shown_default("10");
  arguments.number("--latency", network.latency_us, "Microseconds from a message's leaving to its arrival", 0.0, 1e9)
      .shown_default("50");
  arguments.number("--overhead", network.overhead_us, "Microseconds that each message keeps a port", 0.0, 1e9)
      .shown_default("1");
  add_reduce(arguments, network, "GB/s that a lane adds");
}

}  // namespace param_sync::commands
