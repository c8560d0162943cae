#pragma once
/// @file Gives a NIC the rings in device memory, so that it reads and writes them itself (GPUDirect RDMA), where that
/// can be done.

#include "host_proxy/memory/segment.hpp"
#include "rdma/registration.hpp"

#include <optional>
#include <string>

namespace gpusock::proxy::verbs {

class DeviceRings {
 public:
  /// `wanted`: false to leave the copies between device and host memory in place. `paths`: how a GPU's memory is given
  /// to NICs; nothing: as this machine has it.
  explicit DeviceRings(bool wanted, std::optional<rdma::GpuMemoryPaths> paths = std::nullopt)
      : wanted_(wanted), paths_(paths) {}

  struct Keys {
    rdma::Registration rx;  ///< remote
    rdma::Registration tx;
  };

  /// Registers both rings of a segment in device memory, under the addresses by which the proxy knows them. Nothing
  /// where that is not wanted or does not work, which is logged once for each reason.
  std::optional<Keys> give(ibv_pd* domain, const Segment& rings);

  /// Why it did not work when it was last tried; empty where it did, and before.
  const std::string& why_not() const { return why_not_; }

 private:
  rdma::Registration give_ring(ibv_pd* domain, const Segment& rings, ringbuf::RingMemory RingMemories::*which,
                               rdma::Access access);
  void log_once(const rdma::Registration& region);

  bool wanted_;
  std::optional<rdma::GpuMemoryPaths> paths_;
  std::string why_not_;
  std::string last_logged_;
};

}  // namespace gpusock::proxy::verbs
