#pragma once
/// @file What a run has measured: each node's part, and all of them together as text, JSON and a series to plot.

#include "settings/config.hpp"
#include "layout/layout.hpp"
#include "plan/layer_schemes.hpp"
#include "report/trace.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace param_sync {

/// A node's bytes for one layer, message headers included.
struct LayerTraffic {
  std::uint64_t pushed_bytes = 0;     ///< gradients sent to owners
  std::uint64_t pulled_bytes = 0;     ///< weights received from owners
  std::uint64_t gathered_bytes = 0;   ///< gradients received for own shards
  std::uint64_t published_bytes = 0;  ///< weights sent from own shards
  std::uint64_t in_place_bytes = 0;   ///< of pushed_bytes: written by the kernels that computed them into the rings
};

/// What JSON holds under the members' names.
struct NodeCounters {
  int rank = 0;
  double train_s = 0;            ///< from the first launch until the last weights are there
  std::uint64_t first_step = 0;  ///< not 0 where the run went on from a checkpoint
  std::uint64_t steps = 0;       ///< of this run
  std::vector<LayerTraffic> layers;
  std::uint64_t communicating_ns = 0;         ///< sum over the steps: from when a push may begin until the last weights
  std::uint64_t exposed_ns = 0;               ///< of that, no kernel computed
  std::vector<std::uint64_t> step_waited_ns;  ///< forward kernels stood still, for each step; empty: never
  std::vector<std::uint64_t> step_times_ns;   ///< when each step's loss was computed, since the first; empty: unknown
  std::uint64_t host_api_calls = 0;           ///< while training, evaluation included
  std::uint64_t proxy_steps = 0;
  std::uint64_t proxy_wakeups = 0;
  std::uint64_t tcp_tx_bytes = 0;
  std::uint64_t p2p_tx_bytes = 0;
  std::uint64_t verbs_tx_bytes = 0;
  std::uint64_t fabric_tx_bytes = 0;
  std::vector<double> accuracies;  ///< of the test set after each epoch that this run has ended, 0 to 1; rank 0's only
};

struct NodeReport : NodeCounters {
  std::uint64_t weights_hash = 0;  ///< FNV-1a of the final weights
  std::vector<float> losses;       ///< mean over this node's samples, for each step
  double test_loss = 0;            ///< mean, after the last epoch
  std::vector<TraceSpan> trace;    ///< where it was asked for; not in JSON
};

/// A run: what was asked for and what its nodes report.
struct RunReport {
  Config config;
  Layout layout;
  std::string device;             ///< "cpu" or "cuda"
  std::vector<NodeReport> nodes;  ///< of this process, or of all

  double samples_per_s() const;
  /// Share of the communication in which kernels of the same node computed, 0 to 1, over all nodes; 1 without
  /// communication.
  double hidden_share() const;
  /// Mean over the nodes, for each step.
  std::vector<float> losses() const;
  std::vector<double> waited_s() const;
  /// By layer.
  std::vector<LayerScheme> schemes() const { return choose_schemes(config, layout); }
  /// True if all nodes end with the same weights.
  bool same_weights() const;

  /// The summary, as lines of text.
  std::string summary() const;
  nlohmann::json json() const;

  /// Writes the JSON, the series and the trace where the configuration says so. Throws gpusock::Error where it cannot.
  void write_files() const;
};

nlohmann::json to_json(const NodeReport& report);
NodeReport node_report_from(const nlohmann::json& json);
/// A number that nodes tell each other: JSON has none for what is not a number any more, as the loss of training that
/// diverged.
double number_from(const nlohmann::json& json);

}  // namespace param_sync
