#pragma once
/// @file Weights that ranks share: gradients are pushed to the weights' owners, and weights are pulled from them. Link
/// gpusock::param_sync.

#include "param_sync/group.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace param_sync {

/// What an owner does with the sum of all ranks' gradients of a push.
struct Update {
  float learning_rate = 0;  ///< how far a weight goes along its velocity
  float momentum = 0;       ///< how much of its velocity stays
  float scale = 1;          ///< of the sum: 1 / ranks makes it their mean

  /// SGD: velocity = momentum * velocity + scale * sum; weight -= learning_rate * velocity. Velocities begin at 0.
  static constexpr Update sgd(float learning_rate, float momentum = 0, float scale = 1) {
    return {learning_rate, momentum, scale};
  }
  /// weight += sum.
  static constexpr Update add() { return {-1, 0, 1}; }
};

/// A parameter server whose servers are the ranks themselves: rank r owns the weights in group.part(r, size()), and
/// keeps only these, and a velocity for each, in device memory.
///
/// push() and pull() are operations of the group. They are asynchronous and have deadlines as all of them, and all
/// ranks start the same ones in the same order; group.wait() and group.done() take their numbers. So a pull gets the
/// weights of a version that is the same on all ranks, bit for bit: after exactly those pushes that were started before
/// it.
/// **Staleness** is the program's choice. Gradients that are computed from the weights of a pull, and pushed when n
/// other pushes were started since, are n versions stale. With a pull after each push, n is 0 (bulk-synchronous); a
/// program that starts push t only when it has waited for the pull that follows push t - 1 - s has n of at most s. A
/// push ends only when all ranks have pushed: no rank is ahead of another one by more than the pushes that it has not
/// waited for.
///
/// Sums are made in an order that depends on the number of ranks and of weights only, so equal gradients give equal
/// weights. One host thread at a time, and not at the same time as calls of the group.
class Parameters {
 public:
  /// `initial`, a value for each weight, and `update` are the same on all ranks. The group outlives it. Makes device
  /// memory for this rank's part. Throws gpusock::Error (EINVAL, ENOMEM).
  Parameters(Group& group, std::span<const float> initial, const Update& update);
  /// Waits for its operations that are in flight.
  ~Parameters();
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  /// Sends size() gradients to the weights' owners. These add those of all ranks, and update the weights. Afterwards
  /// the tensor holds intermediate results. Throws as the group's operations.
  Group::Operation push(float* gradients, std::uint64_t timeout_ns = Group::kTimeoutNs);

  /// Writes all size() weights to a tensor of this rank. Throws as the group's operations.
  Group::Operation pull(float* weights, std::uint64_t timeout_ns = Group::kTimeoutNs);

  /// Weights.
  std::size_t size() const;
  /// Pushes that were started: a pull that is started now gets weights of this version.
  std::uint64_t version() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace param_sync
