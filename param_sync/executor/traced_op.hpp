#pragma once
/// @file What a resident lane records of an op that it has done.

#include <cstdint>

namespace param_sync::executor {

/// Times by the device's clock. An op that receives begins when its lane starts to wait for the message, and one that
/// sends when its lane may send (Residence::in_order).
struct TracedOp {
  std::uint64_t begin_ns;  ///< when it began to wait
  std::uint64_t end_ns;    ///< when it was complete
  std::uint64_t step;      ///< of the training, from 0
  std::uint32_t op;        ///< its index in the lane; the number of ops: the update of an all-reduce's sums
  std::uint32_t pass;      ///< of the step (Cut)
};

}  // namespace param_sync::executor
