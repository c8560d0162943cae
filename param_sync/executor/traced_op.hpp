#pragma once
/// @file What a resident lane tells of an op that it has done.

#include <cstdint>

namespace param_sync::executor {

/// Times by the device's clock. An op that receives begins when its lane starts to wait for the message, and one that
/// sends when its lane may send (Residence::in_order).
struct TracedOp {
  std::uint64_t begin_ns;
  std::uint64_t end_ns;
  std::uint64_t step;
  std::uint32_t op;  ///< its number in the lane; the number of ops: the lane's share of an all-reduce's sums is applied
  std::uint32_t pass;
};

}  // namespace param_sync::executor
