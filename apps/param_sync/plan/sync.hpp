#pragma once
/// @file How nodes of a store stay together (--sync): by the store's clock, or by averages.

#include "param_sync/store/clock/clock.hpp"

#include <cstdint>
#include <string_view>
#include <variant>

namespace param_sync {

struct SyncPlan {
  AnyClock clock = Bsp();
  /// Not 0: each node trains by itself for so many steps. Then all nodes take the average of their weights, and go on.
  std::uint64_t local_steps = 0;

  /// True if equal runs end with equal weights.
  bool is_deterministic() const { return std::holds_alternative<Bsp>(clock); }
  /// How many exchanges come before a step.
  std::uint64_t exchanges_before(std::uint64_t step) const { return local_steps == 0 ? step : step / local_steps; }
  /// True if nodes exchange something after the step. They do after the last one of `steps`.
  bool exchanges_after(std::uint64_t step, std::uint64_t steps) const {
    return local_steps == 0 || (step + 1) % local_steps == 0 || step + 1 == steps;
  }
  /// True if a node's weights are the average of all nodes' when the step begins.
  bool begins_alone(std::uint64_t step) const { return local_steps != 0 && step % local_steps == 0; }
  /// How many exchanges there are in so many steps.
  std::uint64_t exchanges(std::uint64_t steps) const {
    return local_steps == 0 ? steps : steps / local_steps + (steps % local_steps == 0 ? 0 : 1);
  }
};

/// Returns what --sync says: a clock of stores, or "every:X". Throws gpusock::Error (EINVAL).
SyncPlan sync_of(std::string_view text);

}  // namespace param_sync
