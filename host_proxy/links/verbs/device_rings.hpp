#pragma once
/// @file Gives a NIC the rings in device memory, so that it reads and writes them itself (GPUDirect RDMA), where that
/// can be done; and the word beside them that kernels poll, where they see the NIC's writes in order (V8).

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
    rdma::Registration word;  ///< remote; empty: callers are not to poll what the NIC writes
  };

  /// Registers both rings of a segment in device memory, and their word, under the addresses by which the proxy knows
  /// them. Nothing where that is not wanted or does not work, which is logged once for each reason.
  std::optional<Keys> give(ibv_pd* domain, const Segment& rings);

  /// Why it did not work when it was last tried; empty where it did, and before.
  const std::string& why_not() const { return why_not_; }

 private:
  rdma::Registration give_ring(ibv_pd* domain, const Segment& rings, ringbuf::RingMemory RingMemories::*which,
                               rdma::Access access);
  rdma::Registration give_memory(ibv_pd* domain, const Platform& platform, void* memory, std::size_t bytes,
                                 rdma::Access access, const void* known_as);
  rdma::Registration give_word(ibv_pd* domain, const Segment& rings);
  void log_once(const rdma::Registration& region);

  bool wanted_;
  std::optional<rdma::GpuMemoryPaths> paths_;
  std::string why_not_;
  std::string last_logged_;
  std::string last_word_logged_;
};

}  // namespace gpusock::proxy::verbs
