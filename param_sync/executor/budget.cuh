#pragma once
/// @file A budget of bytes for what a rank of a parameter server sends in a step: the largest changes are sent, and the
/// rest is kept and added to those of later steps. (Managed communication by magnitude: Wei et al., "Managed
/// Communication and Consistency for Fast Data-Parallel Iterative Analytics", SoCC 2015.)
///
/// Nothing is lost. A gradient is sent, or it is in `withheld`. A weight that its owner has made is what all ranks
/// have, or the owner still has the difference: made - weights. The last step sends all of both.

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync::executor {

/// A float of a tensor, and what is added to it (gradients) or becomes it (weights).
struct Change {
  std::uint32_t index = 0;
  float value = 0;
};

inline constexpr std::uint64_t kChangeWords = sizeof(Change) / sizeof(float);

/// By value; pointers are to device memory. Without memory there is no budget.
struct Budget {
  float* withheld = nullptr;        ///< for each float of the tensor: own gradients that were not sent yet
  float* made = nullptr;            ///< at owners: the weights as the optimizer has made them
  Change* changes = nullptr;        ///< those that were chosen: of a part of a chunk from its first float on
  std::uint32_t* chosen = nullptr;  ///< how many: by chunk and pass
  double changes_per_float = 0;     ///< in a step
  std::uint64_t last_step = 0;

  GPUSOCK_FN bool holds() const { return withheld != nullptr; }

  /// True if a step sends everything: the budget has room for it, or nothing comes afterwards. A change takes twice the
  /// bytes of a float.
  GPUSOCK_FN bool sends_all(std::uint64_t step) const { return changes_per_float >= 0.5 || step == last_step; }

  /// How many changes of so many floats a step may send. What steps before it had no use for, as a share of less than
  /// one change, it gets: so all steps until then together keep to the budget, and small tensors get their turn.
  GPUSOCK_FN std::uint64_t changes_of(std::uint64_t floats, std::uint64_t step) const {
    const double each = changes_per_float * static_cast<double>(floats);
    const std::uint64_t count = static_cast<std::uint64_t>(each * static_cast<double>(step + 1)) -
                                static_cast<std::uint64_t>(each * static_cast<double>(step));
    const std::uint64_t most = floats < 2 ? floats : floats / 2;  // no longer than the floats themselves
    return count < most ? count : most;
  }
};

}  // namespace param_sync::executor
