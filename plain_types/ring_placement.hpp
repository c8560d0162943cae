#pragma once
/// @file Where a connection's rings lie.

#include <string_view>

namespace gpusock {

/// Where rings lie.
enum class RingPlacement {
  automatic,  ///< on a GPU: in its memory between kernels of one GPU, or of GPUs that reach each other (p2p; of two
              ///< processes: with Options::host_rings), and where a NIC reads and writes them (verbs with GPUDirect),
              ///< else in host memory. On the CPU device: in host memory
  host,       ///< in host memory that the device reaches: the proxy reads and writes them
  device,     ///< in the device's memory: copied to and from host memory on tcp and fabric, on verbs where the NIC does
              ///< not reach them. On p2p in host memory where the peer does not reach the device's
};

/// From "auto", "host" or "device". Throws Error (EINVAL) that names the variable which has this value.
RingPlacement parse_ring_placement(std::string_view text, std::string_view variable = "GPUSOCK_RING");
std::string_view to_string(RingPlacement placement);  ///< the name that parse_ring_placement() takes

}  // namespace gpusock
