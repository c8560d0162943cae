#pragma once
/// @file What the operating system knows about a TCP connection (Linux: TCP_INFO).

#include <cstdint>

namespace gpusock::proxy {

struct TcpInfo {
  std::uint32_t known = 0;              ///< 0: nothing is known, and the rest is 0
  std::uint32_t round_trip_us = 0;      ///< smoothed (RFC 6298)
  std::uint32_t round_trip_var_us = 0;  ///< its variation
  std::uint32_t retransmit_timeout_us = 0;
  std::uint32_t congestion_window = 0;  ///< segments
  std::uint32_t segment_bytes = 0;      ///< the largest segment that is sent
  std::uint32_t unacknowledged = 0;     ///< segments that were sent and not acknowledged yet
  std::uint32_t retransmits = 0;        ///< segments, since the connection was made
};

}  // namespace gpusock::proxy
