#pragma once
/// @file How large rings are made.

#include <cstdint>

namespace gpusock::proxy {

/// Capacity of each of a connection's rings, bytes.
struct RingSizes {
  std::uint64_t own;     ///< for a link on which only this process reaches them
  std::uint64_t shared;  ///< for a link on which the peer reaches them
};

/// The sizes that contexts choose if Options::ring_bytes is 0. `pinned`: true if all ring memory is made with the
/// context. On tcp the bytes pass a processor's second-level cache twice and should stay in it. On p2p they go from one
/// processor to another, which is faster if they have left the first one's cache.
constexpr RingSizes default_ring_sizes(bool pinned) {
  return pinned ? RingSizes{1 << 20, 1 << 20} : RingSizes{256 << 10, 2 << 20};
}

}  // namespace gpusock::proxy
