#pragma once
/// @file What asks for admission, and what its ops are.

#include "param_sync/executor/exchange.cuh"

#include <cstdint>

namespace param_sync::executor::admission {

/// A lane of an exchange.
struct Asking {
  const executor::Exchange* exchanges;  ///< all of the rank, those that go first before others
  int index;                            ///< of the lane's
  const executor::Exchange& own;        ///< the lane's copy
  int lane;
};

inline constexpr std::uint64_t kMinusOne = ~std::uint64_t{0};

/// True if the op sends what its rank has from the beginning.
GPUSOCK_FN inline bool leads(const executor::LaneOp& op) {
  return op.kind == schedule::Kind::send && !op.is_signal() && op.after_begin == op.after_end;
}

/// True if the op may have to let others send first. A signal is short, and others wait for it.
GPUSOCK_FN inline bool sends_chunks(const executor::LaneOp& op) {
  return op.out != schedule::kNobody && !op.is_signal();
}

}  // namespace param_sync::executor::admission
