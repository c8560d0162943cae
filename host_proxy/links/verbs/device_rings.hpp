#pragma once
/// @file Gives a NIC the rings in device memory, if possible, so that it reads and writes them itself (GPUDirect RDMA).
/// Also gives it the word beside them that kernels poll, if kernels see the NIC's writes in order (V8).

#include "host_proxy/memory/segment.hpp"
#include "rdma/registration.hpp"

#include <optional>
#include <string>

namespace gpusock::proxy::verbs {

class DeviceRings {
 public:
  /// If `wanted` is false, the copies between device and host memory remain. `paths`: how a GPU's memory is given to
  /// NICs; std::nullopt: as this machine can.
  explicit DeviceRings(bool wanted, std::optional<rdma::GpuMemoryPaths> paths = std::nullopt)
      : wanted_(wanted), paths_(paths) {}

  struct Keys {
    rdma::Registration rx;  ///< written by the peer
    rdma::Registration tx;
    rdma::Registration word;  ///< written by the peer; empty: callers do not poll what the NIC writes
  };

  /// Registers both rings of a segment in device memory, and their word, under the addresses by which the proxy knows
  /// them. Returns nothing if that is not wanted or does not work. Logs the result if it differs from the last one.
  std::optional<Keys> give(ibv_pd* domain, const Segment& rings);

  /// Why the last give() did not work, or not fully; empty if it worked, or was not called.
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
