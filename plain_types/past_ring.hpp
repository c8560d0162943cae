#pragma once
/// @file Bytes that a caller and the network exchange without the ring in between: where callers run the proxy's step
/// themselves, and the ring is empty (docs/decisions/004-assisting.md).

#include <cstdint>

namespace gpusock::detail {

struct PastRing {
  /// Part of a call's bytes are a multiple of this, so that the ring's positions stay as aligned as callers keep them:
  /// a caller of `reserve` or `peek` that moves whole words finds each word where a GPU can access it.
  static constexpr std::uint64_t kUnitBytes = 16;
  enum class Direction { send, receive };

  Direction direction;
  void* data;  ///< the caller's memory; of a send it is only read
  std::uint64_t bytes;

  bool sends() const { return direction == Direction::send; }
};

}  // namespace gpusock::detail
