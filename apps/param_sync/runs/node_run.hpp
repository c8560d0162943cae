#pragma once
/// @file One node's part in a run. With --replicas it goes on with the nodes that are left after a loss.

#include "data/dataset.hpp"
#include "settings/config.hpp"
#include "training/node.hpp"

#include "param_sync/bootstrap/rendezvous.hpp"
#include "param_sync/membership.hpp"

#include "gpusock/gpusock.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace param_sync {

/// The results of a node. They are written after the node itself is destroyed and signals are unblocked.
struct Trained {
  Config config;  ///< as the run has ended: with the nodes that were left
  NodeReport report;
  std::vector<float> weights;
};

/// Takes the place of a Node. With --replicas it makes another Node after a loss.
class NodeRun {
 public:
  /// `observer`: see Node; not used with --replicas. `tell` takes a sentence about each loss from which the nodes go
  /// on, and whether this node is the first one of those that are left. Throws as Node does.
  NodeRun(const Config& config, const Dataset& data, LossObserver observer,
          std::function<void(const std::string&, bool)> tell);

  /// As Node's functions of these names.
  gpusock::Endpoint listen(const gpusock::Endpoint& at);
  std::optional<gpusock::Endpoint> publishes_at() const { return node_->publishes_at(); }
  void connect(const std::vector<gpusock::Endpoint>& peers);
  /// Trains to the end, with all nodes or with those that are left. Throws NodeFailure if too few are left, or if they
  /// have gone on without this one; or Interrupted.
  Trained train(const ProgressSink& progress);
  /// Any thread may call it.
  void request_stop() noexcept;

 private:
  bool survives() const { return first_.replicas > 1; }
  void go_on(const std::string& why);
  void agree(const std::string& why, const gpusock::Endpoint& where);
  bool begin_view(bootstrap::Rendezvous& host, std::string& failure);
  std::vector<gpusock::Endpoint> listen_again(bootstrap::Rendezvous& host);
  void note_lost(const View& begun);
  std::string with_first_ranks(const std::string& message) const;
  void replace(std::unique_ptr<Node> by);

  const Config first_;  ///< as the run has begun
  Config config_;
  const Dataset& data_;
  std::function<void(const std::string&, bool)> tell_;
  LossObserver observer_;
  gpusock::Endpoint listens_at_;  ///< this node's first address
  std::optional<Membership> membership_;
  std::mutex replacing_;
  std::atomic<bool> stopped_{false};
  std::unique_ptr<Node> node_;
  bootstrap::Rendezvous* meeting_ = nullptr;  ///< null, or what listen_again() waits in
  HeldViews held_;
  std::vector<LostNode> lost_;
  std::uint64_t agreements_ = 0;  ///< that this node has begun
};

}  // namespace param_sync
