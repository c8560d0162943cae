#pragma once
/// @file One node: worker, and owner of its shards. It listens, connects to its peers, and trains.

#include "settings/config.hpp"
#include "data/dataset.hpp"
#include "report/failure.hpp"
#include "report/loss.hpp"
#include "report/progress.hpp"
#include "report/report.hpp"

#include "gpusock/gpusock.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace param_sync {

/// The functions by which a node tells that it cannot go on. One that is empty is not called.
struct LossObserver {
  /// Called before the other nodes learn of it: an observer of several nodes is told causes before their consequences.
  std::function<void(const Loss&)> tell = {};
  /// Called when the other nodes have been told. Returns once they have seen which node was lost first, or no longer
  /// can; then this node's sockets close.
  std::function<void()> await_others = {};
};

class Node {
 public:
  /// `config.rank` says which. Throws gpusock::Error where device or settings do not allow it.
  Node(const Config& config, const Dataset& data, LossObserver observer = {});
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
