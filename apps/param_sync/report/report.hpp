#pragma once
/// @file What a run has measured: each node's part, and all of them together as text, JSON and a series to plot.

#include "settings/config.hpp"
#include "layout/layout.hpp"
#include "report/hold_up.hpp"
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
  std::uint64_t in_place_bytes = 0;   ///< part of pushed_bytes that the computing kernels wrote into the rings
};

/// A node that was lost, and without which the others have gone on.
struct LostNode {
  int rank = 0;            ///< its number when the run began; -1: any (--lost, --nodes-after)
  std::uint64_t step = 0;  ///< how many steps the nodes had made together
  int nodes = 0;           ///< how many have gone on
};

/// A node that has joined.
struct JoinedNode {
  int rank = 0;            ///< its number, which no other node of the run has had; -1: any (--nodes-after)
  std::uint64_t step = 0;  ///< how many steps the nodes had made together
  int nodes = 0;           ///< how many have gone on
};

/// Counters that JSON holds under the members' names.
struct NodeCounters {
  int rank = 0;
  double train_s = 0;            ///< from the first launch until the last weights have come
  std::uint64_t first_step = 0;  ///< not 0 if the run resumed from a checkpoint
  std::uint64_t steps = 0;       ///< of this run
  std::vector<LayerTraffic> layers;
  std::uint64_t communicating_ns = 0;         ///< sum over steps: from the first possible push to the last weights
  std::uint64_t exposed_ns = 0;               ///< the part of that in which no kernel computed
  std::vector<std::uint64_t> step_waited_ns;  ///< by step: wait of kernels for weights or factors; empty: none
  /// By step: when its loss was computed, since the first one; of a step that this node has left out, when it had the
  /// weights of a later one; in virtual time, when the step ended, since the start. Empty: unknown.
  std::vector<std::uint64_t> step_times_ns;
  std::uint64_t device_bytes = 0;              ///< of the node's buffers in device memory
  std::uint64_t staged_bytes = 0;              ///< with --device-pool: of weights that were copied into the pool
  std::vector<std::uint64_t> step_copying_ns;  ///< likewise, by step: how long that took; empty: no pool
  std::vector<std::uint64_t> step_stalled_ns;  ///< likewise: how long kernels waited for the pool
  std::uint64_t host_api_calls = 0;            ///< while training, evaluation included
  std::uint64_t proxy_steps = 0;
  std::uint64_t proxy_wakeups = 0;
  std::uint64_t tcp_tx_bytes = 0;
  std::uint64_t p2p_tx_bytes = 0;
  std::uint64_t verbs_tx_bytes = 0;
  std::uint64_t fabric_tx_bytes = 0;
  /// With --sync, by lag: how many pulls of a range have missed so many pushes of another node, counted from this
  /// node's own clock (by 64, or more: number 64); empty: none was counted.
  std::vector<std::uint64_t> staleness;
  std::uint64_t staleness_sum = 0;  ///< of all these lags
  std::uint64_t staleness_max = 0;  ///< the longest one
  /// With --serial --sync, or --sync backup:B and coded:K: parts of steps' samples that all nodes, or this one, have
  /// computed.
  std::uint64_t computed_batches = 0;
  std::uint64_t pushes = 0;               ///< likewise: pushes of the whole model that they have sent
  std::uint64_t dropped_pushes = 0;       ///< with --serial and such a clock: those that were late
  std::uint64_t checkpoints = 0;          ///< that this node has written
  std::uint64_t checkpoint_stall_ns = 0;  ///< how long steps have waited for them in all
  std::uint64_t began_ns = 0;             ///< the device's time of the first step's loss; alike on nodes of one machine
  std::vector<LostNode> lost;      ///< with --replicas, in the order of losses; of a node that has joined, since then
  std::vector<JoinedNode> joined;  ///< likewise
  std::vector<NodesAfter> nodes_after;  ///< likewise: lost and joined nodes together, in order
  std::vector<NodesAfter> resumed;      ///< the step of a store's checkpoint, as so many nodes have counted; or nothing
  std::vector<double> accuracies;  ///< on the test set after each epoch that this run has ended, 0 to 1; only of rank 0
};

struct NodeReport : NodeCounters {
  std::uint64_t weights_hash = 0;  ///< FNV-1a of the final weights
  std::vector<float> losses;       ///< by step: mean over this node's samples; NaN: it has left the step out
  double test_loss = 0;            ///< mean over the test set, after the last epoch
  std::vector<TraceSpan> trace;    ///< if it was asked for; not in JSON
  std::string history;             ///< likewise: pushes and pulls, as lines of JSON
};

/// A run: what was asked for and what its nodes report.
struct RunReport {
  Config config;
  Layout layout;
  std::string device;             ///< "cpu" or "cuda"
  std::vector<NodeReport> nodes;  ///< all nodes, or only that of this process

  double samples_per_s() const;
  /// Share of the communication time in which kernels of the same node computed, over all nodes: 0 to 1; 1 if there was
  /// no communication.
  double hidden_share() const;
  /// Mean over the nodes, by step.
  std::vector<float> losses() const;
  std::vector<double> waited_s() const;
  /// By step: which node the others have waited for. Empty if the waits of all nodes are not here.
  std::vector<HoldUp> hold_ups() const;
  /// The same of the whole run: what only chance makes different in single steps is none.
  HoldUp hold_up() const;
  /// With --device-pool: bytes of weights that a step of a node has copied into the pool.
  double staged_per_step() const;
  /// Likewise: the share of their time in which kernels of steps waited for the pool.
  double stall_share() const;
  /// Likewise: the share of that time in which weights were copied over the bus.
  double copying_share() const;
  /// The scheme of each layer.
  std::vector<LayerScheme> schemes() const { return choose_schemes(config, layout); }
  /// True if all nodes end with the same weights.
  bool same_weights() const;

  /// The summary, as lines of text.
  std::string summary() const;
  nlohmann::json json() const;

  /// Writes the JSON, the series and the trace to the files that `config` names. Throws gpusock::Error if it cannot.
  void write_files() const;
};

nlohmann::json to_json(const NodeReport& report);
NodeReport node_report_from(const nlohmann::json& json);
/// Returns a number that nodes tell each other. null means NaN, which JSON cannot hold, such as the loss of training
/// that diverged.
double number_from(const nlohmann::json& json);

}  // namespace param_sync
