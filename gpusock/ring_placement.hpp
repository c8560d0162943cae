#pragma once
/// @file Where a connection's ring bytes lie.

#include <string_view>

namespace gpusock {

/// Where the bytes of rings lie; their words are in host memory always.
enum class RingPlacement {
  automatic,  ///< what is fastest, as far as it was measured: docs/decisions/010-ring-placement.md
  host,       ///< in host memory that the device reaches: the proxy reads and writes them
  device,     ///< in the device's memory: copied to and from host memory on tcp and fabric, on verbs where the NIC does
              ///< not reach them
};

/// From "auto", "host" or "device" (GPUSOCK_RING). Throws Error (EINVAL).
RingPlacement parse_ring_placement(std::string_view text);
std::string_view to_string(RingPlacement placement);  ///< the name that parse_ring_placement() takes

}  // namespace gpusock
