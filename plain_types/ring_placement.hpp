#pragma once
/// @file Where a connection's rings lie.

#include <string_view>

namespace gpusock {

/// Where rings lie.
enum class RingPlacement {
  automatic,  ///< on a GPU: in its memory for p2p between kernels of one GPU, or of GPUs that reach each other (between
              ///< processes: with Options::host_rings), and for verbs if a NIC reads and writes it (GPUDirect); else in
              ///< host memory. On the CPU device: in host memory
  host,       ///< in host memory that the device and the proxy reach
  device,     ///< in the device's memory. On tcp and fabric, and on verbs if the NIC does not reach it, bytes are
              ///< copied to and from host memory. On p2p in host memory if the peer does not reach the device's
};

/// The placement of the name "auto", "host" or "device". Throws Error (EINVAL) that says which variable has this value.
RingPlacement parse_ring_placement(std::string_view text, std::string_view variable = "GPUSOCK_RING");
std::string_view to_string(RingPlacement placement);  ///< the name that parse_ring_placement() takes

}  // namespace gpusock
