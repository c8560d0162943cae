#pragma once
/// @file One node: worker, and owner of its shards. It listens, connects to its peers, and trains.

#include "config.hpp"
#include "data/dataset.hpp"
#include "report/failure.hpp"
#include "report/progress.hpp"
#include "report/report.hpp"
#include "report/stall.hpp"

#include "gpusock/gpusock.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace param_sync {

/// A node cannot go on.
struct Loss {
  bool stalled = false;  ///< it has waited for too long; else another node was lost, or is none to work with
  std::optional<StepProgress> step_progress;  ///< where it trains
};

/// Returns once the other nodes have seen which node was lost first, or no longer can.
using Linger = std::function<void(const Loss&)>;

class Node {
 public:
  /// `config.rank` says which. `linger` is called when another node was lost, before this node's own sockets close;
  /// without one, they close a moment later. Throws gpusock::Error where device or settings do not allow it.
  Node(const Config& config, const Dataset& data, Linger linger = {});
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// Listens and returns where. Throws NodeFailure, Interrupted.
  gpusock::Endpoint listen(const gpusock::Endpoint& at);

  /// Connects to all nodes; `peers` holds each rank's address. Throws NodeFailure that names the rank, Interrupted.
  void connect(const std::vector<gpusock::Endpoint>& peers);

  /// Trains to the end. Throws NodeFailure that names the rank that was lost, Interrupted.
  NodeReport train(const ProgressSink& progress);

  /// The weights, once trained.
  std::vector<float> weights() const;

  /// Ends what the node is doing, soon. From any thread; not from a signal handler.
  void request_stop() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace param_sync
