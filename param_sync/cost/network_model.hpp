#pragma once
/// @file The machines and links of a simulation.

#include "param_sync/schedule/topology.hpp"

#include <optional>

namespace param_sync::cost {

/// Each rank has one port that sends and one that receives, at `bandwidth` each. With a topology it has one of each for
/// every link. A message of n bytes keeps a port busy for `overhead_s` + n / bandwidth, and arrives `latency_s` after
/// it left.
struct NetworkModel {
  double latency_s = 50e-6;                    ///< time from when a message leaves until it arrives
  double overhead_s = 1e-6;                    ///< overhead of each message
  double bandwidth = 1.25e9;                   ///< bytes/s: 10 Gb/s
  double reduce_bandwidth = 10e9;              ///< bytes/s that a lane adds, or applies the optimizer to
  std::optional<schedule::Topology> topology;  ///< if set, its bandwidths count instead of `bandwidth`
};

}  // namespace param_sync::cost
