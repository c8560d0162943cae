#pragma once
/// @file Arguments that several commands on schedules share, and functions that use them.

#include "program/arguments.hpp"
#include "program/run.hpp"
#include "param_sync/schedule/check.hpp"
#include "param_sync/schedule/schemes.hpp"
#include "param_sync/schedule/topology.hpp"
#include "param_sync/cost/network_model.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace param_sync::commands {

using gpusock::program::Arguments;
using gpusock::program::Misuse;

inline constexpr std::uint64_t kSizeMax = std::uint64_t{1} << 44;  ///< most bytes of data in virtual time

/// The source of a schedule: a scheme or a file.
struct Source {
  std::string scheme;
  std::string file;
  std::string topology_file;
  std::optional<schedule::Topology> topology;
  schedule::Request given;   ///< members that were not given are 0
  bool is_optional = false;  ///< true if the command needs neither a scheme nor a file
};

/// Modelled links. Members that were not given are negative.
struct NetworkOptions {
  double gigabits = -1;
  double latency_us = -1;
  double overhead_us = -1;
  double reduce_gigabytes = -1;

  /// True if at least one of them was given.
  bool given() const { return gigabits >= 0 || latency_us >= 0 || overhead_us >= 0 || reduce_gigabytes >= 0; }
  /// Returns the model, with defaults for members that were not given.
  cost::NetworkModel model() const;
};

/// Adds the arguments of a source; --scheme takes `schemes`. If `uses_topology`, schedules run on the topology's links.
void add_source(Arguments& arguments, Source& source, bool uses_topology, const std::vector<std::string>& schemes);

/// Returns the names of all schemes that generate() makes.
std::vector<std::string> all_schemes();
void add_network(Arguments& arguments, NetworkOptions& network);
/// Adds only the speed of additions, for commands without links.
void add_reduce(Arguments& arguments, NetworkOptions& network, const std::string& help);

/// Returns the request of the source, with defaults for members that were not given.
schedule::Request request_of(const Source& source);

/// Returns the schedule, and what the checker counted. Throws Misuse or schedule::Error.
std::pair<schedule::Schedule, schedule::Counts> take_schedule(Source& source);

/// Returns one line about a schedule.
std::string summary(const schedule::Schedule& schedule, const schedule::Counts& counts);

/// Says why a tensor of floats cannot have so many bytes, which `option` gave. Empty if it can.
std::string problem_of_floats(const std::string& option, std::uint64_t bytes);

/// Returns text such as "64K".
std::string in_units(std::uint64_t bytes);

/// Returns the title of a column, with spaces before it. A column is at least ten characters wide.
std::string column(const std::string& title);
std::size_t column_width(const std::string& title);

}  // namespace param_sync::commands
