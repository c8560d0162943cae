#pragma once
/// @file One node of a training: a worker that also owns its shards. It listens, connects to its peers, and trains.

#include "settings/config.hpp"
#include "data/dataset.hpp"
#include "plan/held_views.hpp"
#include "report/failure.hpp"
#include "report/loss.hpp"
#include "report/progress.hpp"
#include "report/report.hpp"

#include "param_sync/store.hpp"

#include "gpusock/gpusock.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace param_sync {

/// Functions that a node calls when it cannot go on. An empty one is not called.
struct LossObserver {
  /// Called before the other nodes learn of the loss, so that an observer of several nodes hears causes before effects.
  std::function<void(const Loss&)> tell = {};
  /// Called after the other nodes have been told. Returns when they have seen which node was lost first, or cannot see
  /// it any more. Then this node's sockets close.
  std::function<void()> await_others = {};
};

/// What a node has of a training that a loss has ended (Node::held()).
struct HeldTraining {
  std::uint64_t view = 0;         ///< the number of the view; 0: this node was not there
  int nodes = 0;                  ///< how many there were
  std::uint64_t first_step = 0;   ///< the step with which their run began
  ViewOrigin origin;              ///< after which step of which view
  std::vector<HeldRange> ranges;  ///< see Store::held()
};

/// What a node has of views that have ended, oldest first (see plan/held_views.hpp).
using HeldViews = std::vector<HeldTraining>;

class Node {
 public:
  /// Makes the node of rank `config.rank`. Throws gpusock::Error if the device or the settings do not allow it.
  /// `before`: null, or what is left of a training with --replicas with which the nodes go on; it stays until connect()
  /// has returned.
  Node(const Config& config, const Dataset& data, LossObserver observer = {}, const HeldViews* before = nullptr);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// Listens, and returns the address at which it listens. Throws NodeFailure or Interrupted.
  gpusock::Endpoint listen(const gpusock::Endpoint& at);

  /// Where this node publishes its weights (--publish); nothing if it does not.
  std::optional<gpusock::Endpoint> publishes_at() const;

  /// Connects to all nodes. `peers`: each rank's address. Throws NodeFailure, which names the rank, or Interrupted.
  void connect(const std::vector<gpusock::Endpoint>& peers);

  /// With --sync all nodes tell each other an address: returns those of all, by rank. After connect(), and before
  /// train(). Throws NodeFailure or Interrupted.
  std::vector<gpusock::Endpoint> exchange(const gpusock::Endpoint& mine);

  /// After which step of which view the nodes go on; once connected.
  ViewOrigin origin() const;

  /// Trains to the end. Throws NodeFailure, which names the lost rank if it is known, or Interrupted.
  NodeReport train(const ProgressSink& progress);

  /// After train() or connect() has thrown NodeFailure: ends all kernels and connections, and returns what this node
  /// has, with which the nodes that are left can go on. Without --replicas it has nothing.
  HeldTraining held();

  /// Returns the weights after the training.
  std::vector<float> weights() const;

  /// Makes the node end soon what it is doing. Any thread may call it, but no signal handler.
  void request_stop() noexcept;

  struct Impl;  ///< what a node is made of: training/node_impl.cuh

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace param_sync
