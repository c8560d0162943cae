#pragma once
/// @file Arguments that several commands on schedules share, and what they make of them.

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

inline constexpr std::uint64_t kSizeMax = std::uint64_t{1} << 44;  ///< bytes, in virtual time

/// Where the schedule comes from: a scheme, or a file.
struct Source {
  std::string scheme;
  std::string file;
  std::string topology_file;
  std::optional<schedule::Topology> topology;
  schedule::Request given;   ///< 0 where nothing was
  bool is_optional = false;  ///< true where neither a scheme nor a file need be given
};

/// Modelled links. Less than 0: not given.
struct NetworkOptions {
  double gigabits = -1;
  double latency_us = -1;
  double overhead_us = -1;
  double reduce_gigabytes = -1;

  /// True if one of them was given.
  bool given() const { return gigabits >= 0 || latency_us >= 0 || overhead_us >= 0 || reduce_gigabytes >= 0; }
  /// Defaults where nothing was given.
  cost::NetworkModel model() const;
};

/// `uses_topology`: the topology's links are those on which the schedule runs. `schemes`: what --scheme may be.
void add_source(Arguments& arguments, Source& source, bool uses_topology, const std::vector<std::string>& schemes);

/// All that generate() makes.
std::vector<std::string> all_schemes();
void add_network(Arguments& arguments, NetworkOptions& network);

/// What is asked for: defaults where nothing was given.
schedule::Request request_of(const Source& source);

/// The schedule, and what the checker counted. Throws Misuse or schedule::Error.
std::pair<schedule::Schedule, schedule::Counts> take_schedule(Source& source);

/// One line about a schedule.
std::string summary(const schedule::Schedule& schedule, const schedule::Counts& counts);

/// What is wrong with a tensor of floats that has so many bytes, or nothing. `option` gave them.
std::string problem_of_floats(const std::string& option, std::uint64_t bytes);

/// "64K"
std::string in_units(std::uint64_t bytes);

/// Spaces before a column of this title, which is at least ten wide.
std::string column(const std::string& title);
std::size_t column_width(const std::string& title);

}  // namespace param_sync::commands
