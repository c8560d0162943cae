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
  float momentum = 0;       ///< the share of its velocity that a weight keeps
  float scale = 1;          ///< factor of the sum: 1 / ranks makes it the mean
  bool nesterov = false;    ///< see nesterov_sgd()
  float l1 = 0;             ///< see proximal()

  /// SGD: velocity = momentum * velocity + scale * sum; weight -= learning_rate * velocity. Velocities begin at 0.
  static constexpr Update sgd(float learning_rate, float momentum = 0, float scale = 1) {
    return {learning_rate, momentum, scale};
  }
  /// SGD with Nesterov's momentum: weight -= learning_rate * (momentum * velocity + scale * sum), with the new
  /// velocity.
  static constexpr Update nesterov_sgd(float learning_rate, float momentum, float scale = 1) {
    return {learning_rate, momentum, scale, true};
  }
  /// Proximal gradient descent, for a loss with l1 times the sum of all weights' absolute values: as sgd(); then a
  /// weight goes towards 0 by learning_rate * l1, and not beyond. So weights that do not matter are 0. A Store whose
  /// clock is not Bsp does this for pushed rows alone, by a rank's part of l1: so push those whose weights are not 0.
  static constexpr Update proximal(float learning_rate, float l1, float scale = 1) {
    return {learning_rate, 0, scale, false, l1};
  }
  /// weight += sum.
  static constexpr Update add() { return {-1, 0, 1}; }
};

/// A parameter server whose servers are the ranks themselves: rank r owns the weights in group.part(r, size()), and
/// keeps only these, and a velocity for each, in device memory.
///
/// push() and pull() are operations of the group: they are asynchronous, they have deadlines, and all ranks start them
/// in the same order. group.wait() and group.done() take their numbers. A pull gets the weights after exactly those
/// pushes that were started before it. So all ranks get the same version, bit for bit.
///
/// **Staleness** is the program's choice. Gradients are n versions stale if n other pushes were started between the
/// pull of the weights that they were computed from and their own push. With a pull after each push, n is 0
/// (bulk-synchronous). If a program starts push t only after it has waited for the pull that follows push t - 1 - s, n
/// is at most s. A push ends only when all ranks have pushed, so no rank is ahead of another by more than the pushes
/// that it has not waited for.
///
/// The order of sums depends only on the number of ranks and the number of weights, so equal gradients give equal
/// weights. One host thread at a time calls it, and not at the same time as the group.
class Parameters {
 public:
  /// Makes device memory for this rank's part of the weights. `initial` has a value for each weight. All ranks pass the
  /// same `initial` and `update`. The group outlives this object. Throws gpusock::Error (EINVAL, ENOMEM).
  Parameters(Group& group, std::span<const float> initial, const Update& update);
  /// Waits for pushes and pulls that are in flight.
  ~Parameters();
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  /// Sends size() gradients to the weights' owners, which add the gradients of all ranks and update the weights.
  /// Afterwards the tensor holds intermediate results. Throws as the group's operations do.
  Group::Operation push(float* gradients, std::uint64_t timeout_ns = Group::kTimeoutNs);

  /// Writes all size() weights to a tensor of this rank. Throws as the group's operations do.
  Group::Operation pull(float* weights, std::uint64_t timeout_ns = Group::kTimeoutNs);

  /// The number of weights.
  std::size_t size() const;
  /// The number of pushes that were started. A pull that is started now gets weights of this version.
  std::uint64_t version() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace param_sync
