#pragma once
// A connection that takes nothing more, since its peer does not read.
#include "tests/support/patience.hpp"

#include <gpusock/gpusock.hpp>

#include <cerrno>
#include <string>

namespace gpusock::fault {

/// Of all rings of these tests: ring_option() gives a peer's endpoint the same.
inline constexpr std::uint64_t kRingBytes = 64 << 10;
inline std::string ring_option() { return ",ring=64K"; }

/// Bytes that a connection on this link takes while nobody reads; 0 on tcp: what the operating system buffers is not
/// known.
inline std::uint64_t capacity_of(const std::string& link) {
  if (link == "tcp") return 0;
  return link == "p2p" ? kRingBytes : 2 * kRingBytes;  // peers on p2p share a ring
}

/// Sends so many bytes, or, where that is 0, until nothing more goes for `quiet_ns`. `data` has kRingBytes. 0 or a
/// negated errno.
GPUSOCK_FN inline std::int64_t fill(const Net& net, Socket socket, const std::uint8_t* data, std::uint64_t capacity,
                                    std::uint64_t quiet_ns) {
  while (capacity != 0) {
    const std::int64_t sent = net.send(this_thread(), socket, data, capacity < kRingBytes ? capacity : kRingBytes, 0,
                                       patience());
    if (sent <= 0) return sent;
    capacity -= static_cast<std::uint64_t>(sent);
    if (capacity == 0) return 0;
  }
  std::int64_t sent = 1;
  while (sent > 0) sent = net.send(this_thread(), socket, data, kRingBytes, 0, Deadline::after_ns(quiet_ns));
  return sent == -ETIMEDOUT ? 0 : sent;
}

}  // namespace gpusock::fault
