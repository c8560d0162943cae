#pragma once
/// @file Endpoints that stay open for a while behind their last connection, where the fabric closes well only those on
/// which nothing goes on (FabricPort::closes_only_idle()). A connection to the same peer finds its endpoint there
/// meanwhile.

#include "host_proxy/links/fabric/peer_endpoint.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace gpusock::proxy::fabric {

class IdleEndpoints {
 public:
  IdleEndpoints() = default;
  /// Those whose time is not up are the process's from then on: maintain() of any context sees to them.
  ~IdleEndpoints();
  IdleEndpoints(const IdleEndpoints&) = delete;
  IdleEndpoints& operator=(const IdleEndpoints&) = delete;

  /// From when it is made on; it need not be idle.
  void keep(std::shared_ptr<PeerEndpoint> peer);
  /// Lets go who has been idle for kIdleNs, or longest where too many are. Does not wait. Any clock that goes on.
  void maintain(std::uint64_t now_ns);
  std::size_t size() const { return kept_.size(); }

  static constexpr std::uint64_t kIdleNs = 1'000'000'000;
  /// Each holds some megabytes of the fabric's own buffers.
  static constexpr std::size_t kIdleMax = 8;

 private:
  struct Kept {
    std::shared_ptr<PeerEndpoint> peer;
    std::uint64_t connections_made = 0;  // when it was last seen
    std::uint64_t idle_since_ns = 0;     // 0: it is not
  };
  struct Orphans;
  static Orphans& orphans();

  void note_idle(std::uint64_t now_ns);
  void let_go(std::uint64_t now_ns);

  std::vector<Kept> kept_;
};

}  // namespace gpusock::proxy::fabric
