#pragma once
/// @file Why a run ended early: what a kernel records, and the messages about it.

#include "layout/layout.hpp"

#include "gpusock/endpoint.hpp"

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace param_sync {

/// What ended the run.
enum class FailureKind : std::uint32_t {
  none,
  listen,       ///< this node could not listen
  connect,      ///< a peer could not be reached
  accept,       ///< a peer did not connect to this node
  mismatch,     ///< a peer was started with other settings; `field` says which
  receive,      ///< receiving gradients or weights from a peer has failed
  send,         ///< sending gradients or weights to a peer has failed
  end,          ///< a peer has ended without a last word
  told,         ///< a peer (`teller`) has failed and told which `rank` it has lost; -1: it does not know
  silent,       ///< a peer (`teller`) has ended a connection, and has not said why
  interrupted,  ///< a peer was told to end
  protocol,     ///< a peer sent a message that is invalid here
  late,         ///< what a kernel waited for did not happen in time; no particular peer is to blame
  store,        ///< a push to the store, or a pull, has failed; the store says why
  behind,       ///< a peer has made no push in time that the last weights need
};

/// The settings that all nodes of a run must share, in the order in which they are compared.
enum class RunSetting : std::uint32_t {
  none,
  version,
  nodes,
  model,
  data,
  steps,
  batch,
  seed,
  optimizer,
  scheme,      ///< of each layer
  transfer,    ///< --fuse, --credits, --budget
  first_step,  ///< the step that --resume has found
  sync,        ///< --sync
  rank         ///< not a setting: two nodes claim one rank, or a node listens at another one's address
};

/// The version of the settings' meaning. In version 9 a model is identified by its layers' descriptions.
inline constexpr std::uint64_t kRunSettingsVersion = 9;

/// The values of the settings, by RunSetting; the first entry is not used.
using RunSettings = std::array<std::uint64_t, static_cast<std::size_t>(RunSetting::rank)>;

/// Returns the name of a setting, with the options that decide it.
std::string field_name(RunSetting field);

/// Why a node could not go on.
struct Failure {
  FailureKind kind = FailureKind::none;
  std::int32_t rank = -1;  ///< the peer, or the lost rank; -1: none, or unknown
  std::int32_t error = 0;  ///< errno, positive; 0 if the peer closed its connection
  RunSetting field = RunSetting::none;
  std::uint64_t ours = 0;    ///< mismatch: this node's value
  std::uint64_t theirs = 0;  ///< mismatch: the peer's
  std::int32_t teller = -1;
};

/// True if the failure happened after the nodes had connected to each other.
bool in_training(const Failure& failure);

/// Thrown when a node cannot go on. Its message names the peer, and says why and what to do.
class NodeFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A node could not connect to another one, which may run.
class UnreachableNode : public NodeFailure {
 public:
  /// Takes the values of its members.
  UnreachableNode(const std::string& message, int which) : NodeFailure(message), rank(which) {}

  int rank;  ///< the other one
};

/// The run was ended from outside (request_stop).
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

/// Returns the message for `failure` of node `rank`: what happened, with which peer, and what to do. `peer` is the
/// peer's address, or the one at which this node was to listen; without a family it is unknown. `layout` names the
/// layers.
std::string describe(const Failure& failure, int rank, const gpusock::Endpoint& peer, const Layout& layout);

/// Returns the message for nodes that have not come up in time, of `nodes` that were started.
std::string describe_missing(const std::vector<int>& ranks, int nodes, double limit_s);

}  // namespace param_sync
