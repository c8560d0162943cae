#pragma once
/// @file The reference without any socket: one process does all nodes' work and sums in the same order.

#include "training/node.hpp"

#include <atomic>

namespace param_sync {

struct SerialResult {
  NodeReport report;  ///< its losses are the means over all nodes
  std::vector<float> weights;
};

/// Trains as config.nodes nodes would, with the same arithmetic. The weights are those of the nodes, bit for bit, if
/// the scheme adds in rank order (docs/schedules.md). Throws Interrupted soon after `stop` becomes true.
SerialResult train_serially(const Config& config, const Dataset& data, const ProgressSink& progress,
                            const std::atomic<bool>& stop);

}  // namespace param_sync
