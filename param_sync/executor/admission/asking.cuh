#pragma once
/// @file The lane that asks for admission, and the kinds of its ops.

#include "param_sync/executor/exchange.cuh"

#include <cstdint>

namespace param_sync::executor::admission {

/// A lane, and its exchange.
struct Asking {
  const executor::Exchange* exchanges;  ///< all exchanges of the rank: those that send first come first
  int index;                            ///< index of the lane's exchange
  const executor::Exchange& own;        ///< the lane's copy of its exchange
  int lane;
};

inline constexpr std::uint64_t kMinusOne = ~std::uint64_t{0};

/// True if the op sends what its rank has from the beginning: it waits for no other op.
GPUSOCK_FN inline bool leads(const executor::LaneOp& op) {
  return op.kind == schedule::Kind::send && !op.is_signal() && op.after_begin == op.after_end;
}

/// True if the op may have to let others send first. A signal never has to: it is short, and others wait for it.
GPUSOCK_FN inline bool sends_chunks(const executor::LaneOp& op) {
  return op.out != schedule::kNobody && !op.is_signal();
}

}  // namespace param_sync::executor::admission
