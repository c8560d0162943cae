#pragma once
/// @file What an owner does about a push that is late: other ranks have changed the weights since its worker has read
/// them. Servers and param_sync --serial use the same code.

#include "param_sync/update/sgd.hpp"

#include "gpusock/types.hpp"

#include <cmath>
#include <cstdint>

namespace param_sync {

/// How an owner corrects a late push. With Bsp no push is late.
struct Correction {
  /// Divides a push by its lag, if that is more than 1. The lag is how many pushes each of the other ranks has made, on
  /// average, since the worker has read the range (Zhang et al., "Staleness-aware async-SGD for distributed deep
  /// learning", IJCAI 2016).
  bool divides_by_lag = false;
  /// Not 0: adds compensation / sqrt(m) * g * g * (weight - weight as it was read) to a gradient g. m is a moving mean
  /// of the weight's squared gradients. g is a push times Update::scale and the number of ranks. (lambda_0 of Zheng et
  /// al., "Asynchronous stochastic gradient descent with delay compensation", ICML 2017, who take 2.)
  float compensation = 0;
};

namespace store {

/// Applies one push of one rank.
class SinglePush {
 public:
  /// `missed`: how many pushes of the other ranks were applied since the worker has read.
  GPUSOCK_FN SinglePush(const Sgd& update, const Correction& correction, int ranks, std::uint64_t missed)
      : update_(update), compensation_(correction.compensation), scale_(update.scale * static_cast<float>(ranks)) {
    const float lag = ranks == 1 ? 0 : static_cast<float>(missed) / static_cast<float>(ranks - 1);
    if (correction.divides_by_lag && lag > 1) update_.scale /= lag;
    update_.l1 /= static_cast<float>(ranks);  // it is of a step of all ranks
  }

  /// `read`: the weight as the worker has read it; null without a compensation. `square`: then, the mean of its squared
  /// gradients, which begins at 0.
  GPUSOCK_FN void apply(float pushed, const float* read, float* square, UpdateState state, float& weight) const {
    if (read != nullptr) {
      constexpr float kKept = 0.95f, kLeast = 1e-7f;  // as Zheng et al. have them
      const float gradient = pushed * scale_;
      *square = kKept * *square + (1 - kKept) * gradient * gradient;
      pushed += compensation_ / sqrtf(*square + kLeast) * gradient * pushed * (weight - *read);
    }
    update_.apply(pushed, state, weight);
  }

 private:
  Sgd update_;
  float compensation_;
  float scale_;  ///< makes a push a gradient of the mean loss
};

}  // namespace store
}  // namespace param_sync
