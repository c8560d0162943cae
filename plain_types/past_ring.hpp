#pragma once
/// @file Bytes that a caller and the network exchange without the ring in between, if callers run the proxy's step
/// themselves and the ring is empty (docs/decisions/004-assisting.md).

#include <cstdint>

namespace gpusock::detail {

struct PastRing {
  /// If a call moves only a part of its bytes, that part is a multiple of this. So the ring's positions stay as aligned
  /// as callers keep them, and callers of `reserve` or `peek` find whole words where a GPU can access them.
  static constexpr std::uint64_t kUnitBytes = 16;
  enum class Direction { send, receive };

  Direction direction;
  void* data;  ///< the caller's memory; a send only reads it
  std::uint64_t bytes;

  bool sends() const { return direction == Direction::send; }
};

}  // namespace gpusock::detail
