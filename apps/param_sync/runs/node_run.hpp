#pragma once
/// @file One node's part in a run. With --replicas it goes on with the nodes that are left after a loss, and with those
/// that join.

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

/// Takes the place of a Node. With --replicas it makes another Node after a loss, and when nodes join.
class NodeRun {
 public:
  /// `observer`: see Node; not used with --replicas. `tell` takes a sentence about each change of the nodes that train,
  /// and whether this node is the first one of those. With --join the node is made by join(). Throws as Node does.
  NodeRun(const Config& config, const Dataset& data, LossObserver observer,
          std::function<void(const std::string&, bool)> tell);

  /// As Node's functions of these names.
  gpusock::Endpoint listen(const gpusock::Endpoint& at);
  std::optional<gpusock::Endpoint> publishes_at() const { return node_->publishes_at(); }
  void connect(const std::vector<gpusock::Endpoint>& peers);
  /// In place of listen() and connect(): asks one of these members to let this node join, in their order, until one
  /// does. Then this node is connected, and has what the others have. Throws NodeFailure or Interrupted.
  void join(const std::vector<gpusock::Endpoint>& members);
  /// How many nodes train together.
  int nodes() const { return config_.nodes; }
  /// Trains to the end, with all nodes or with those that are left. Throws NodeFailure if too few are left, or if they
  /// have gone on without this one; or Interrupted.
  Trained train(const ProgressSink& progress);
  /// Any thread may call it.
  void request_stop() noexcept;

 private:
  bool survives() const { return first_.replicas > 1; }
  int id() const;
  std::uint64_t patience() const;
  void begin_as_member(bootstrap::Rendezvous& host);
  void end_if_trial();
  void take_place();
  void end_view_if_asked(const Progress& now);
  void go_on(const std::string& why);
  void begin_next_view(const std::string& why, int attempts);
  void agree(const std::string& why, const gpusock::Endpoint& where);
  bool begin_view(bootstrap::Rendezvous& host, std::string& failure);
  std::vector<gpusock::Endpoint> listen_again(bootstrap::Rendezvous& host);
  void note_changes(const View& begun);
  void tell_where_to_join() const;
  std::string with_first_ranks(const std::string& message) const;
  void replace(std::unique_ptr<Node> by);

  const Config first_;  ///< as the run has begun
  Config config_;       ///< as the nodes are now
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
  std::vector<int> unreached_;           ///< nodes to which this one could not connect in the last view
  bool is_new_ = false;                  ///< it joins, and has begun no view yet
  NodeCounters changed_;                 ///< lost nodes, and those that have joined
  std::uint64_t changed_from_view_ = 0;  ///< see Node::origin(): at the last change
  std::uint64_t agreements_ = 0;         ///< that this node has begun
};

}  // namespace param_sync
