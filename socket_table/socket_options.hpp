#pragma once
/// @file The options of a socket that its caller and the proxy share.

#include "ringbuf/annotations.hpp"

#include <cstdint>

namespace gpusock::table {

/// The options of an open socket that a caller may set. As one of the callers' words they are published by `requests`.
struct SocketOptions {
  bool no_delay = true;
  bool keep_alive = false;
  std::int32_t linger_s = -1;  ///< seconds that a closed connection may go on delivering; 0: reset at once; -1: the
                               ///< default
  std::uint32_t idle_ms = 0;   ///< how long the connection may be idle, at most kIdleMsMax; 0: for ever

  static constexpr std::uint32_t kIdleMsMax = (1u << 30) - 1;

  GPUSOCK_FN constexpr std::uint64_t pack() const {
    return std::uint64_t{static_cast<std::uint32_t>(linger_s)} << 32 | std::uint64_t{idle_ms & kIdleMsMax} << 2 |
           std::uint64_t{keep_alive} << 1 | std::uint64_t{no_delay};
  }
  GPUSOCK_FN static constexpr SocketOptions unpack(std::uint64_t word) {
    return {(word & 1) != 0, (word & 2) != 0, static_cast<std::int32_t>(word >> 32),
            static_cast<std::uint32_t>(word >> 2) & kIdleMsMax};
  }
};

}  // namespace gpusock::table
