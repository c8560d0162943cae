#pragma once
/// @file A simulated fabric, in the place of libfabric (host_proxy/links/fabric/libfabric_port.cpp): one-sided writes
/// that are complete and land in any order. It is reliable, as libfabric's RDM endpoints are: nothing is lost without a
/// word (but see tells_no_loss), or comes twice.

#include "host_proxy/links/fabric/libfabric_port.hpp"
#include "tests/support/fabric_regions.hpp"
#include "tests/support/sim/kernel.hpp"

#include <map>
#include <memory>

namespace gpusock::sim {

class FabricPort;

/// All endpoints and registered memory of a run.
class Fabric {
 public:
  explicit Fabric(Kernel& kernel) : kernel_(kernel) {}

  bool present = false;           ///< do hosts have it
  std::uint64_t disorder_ns = 0;  ///< by how much writes may pass each other
  std::uint64_t refused_percent = 0;
  std::uint64_t connects_ns = 0;    ///< a new endpoint refuses writes for so long
  std::uint64_t fail_until_ns = 0;  ///< writes that land until then fail
  bool tells_no_loss = false;       ///< writes that reach nobody are complete, as on libfabric's provider tcp

  Kernel& kernel() { return kernel_; }
  std::size_t registrations() const { return regions_.size(); }
  std::size_t ports() const { return ports_.size(); }

 private:
  friend class FabricPort;
  Kernel& kernel_;
  std::map<std::uint64_t, FabricPort*> ports_;
  proxy::fabric::FabricRegions regions_;
  std::uint64_t next_ = 1;
};

/// The one of this run.
extern Fabric* current_fabric;

}  // namespace gpusock::sim
