#pragma once
// Another way to know whether a plan is right: all orders of its steps, one after the other.
#include "foreign/plan.hpp"

#include <cstddef>
#include <optional>
#include <string>

namespace foreign_test {

/// What all orders of a plan's steps lead to.
struct Outcome {
  bool may_hang = false;   ///< some order ends before all blocks have
  bool may_fail = false;   ///< some order leaves a wrong result, a message or a signal
  std::size_t states = 0;  ///< that were looked at
  bool is_right() const { return !may_hang && !may_fail; }
};

/// Tries all orders in which the blocks can receive, read, write, send, signal and wait: each cell by itself. Knows no
/// queues and no barriers, and threads of a block that always meet. Nothing if there are more than `states_max` states.
std::optional<Outcome> all_orders(const param_sync::foreign::Plan& plan, std::size_t states_max);

}  // namespace foreign_test
