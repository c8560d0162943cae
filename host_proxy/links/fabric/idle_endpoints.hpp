#pragma once
/// @file Endpoints that stay open for a while after their last connection, if the fabric closes only idle ones well
/// (FabricPort::closes_only_idle()). A new connection to the same peer can use its endpoint meanwhile.

#include "host_proxy/links/fabric/peer_endpoint.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace gpusock::proxy::fabric {

class IdleEndpoints {
 public:
  IdleEndpoints() = default;
  /// The process keeps the endpoints whose time is not over; maintain() of any other context closes them.
  ~IdleEndpoints();
  IdleEndpoints(const IdleEndpoints&) = delete;
  IdleEndpoints& operator=(const IdleEndpoints&) = delete;

  /// Keeps an endpoint, which need not be idle yet.
  void keep(std::shared_ptr<PeerEndpoint> peer);
  /// Closes endpoints that have been idle for kIdleNs, and the longest idle ones if there are too many. Does not wait.
  /// The time may be of any clock that only grows.
  void maintain(std::uint64_t now_ns);
  std::size_t size() const { return kept_.size(); }

  static constexpr std::uint64_t kIdleNs = 1'000'000'000;
  /// Each holds some megabytes of the fabric's own buffers.
  static constexpr std::size_t kIdleMax = 8;

 private:
  struct Kept {
    std::shared_ptr<PeerEndpoint> peer;
    std::uint64_t connections_made = 0;  // at the last look
    std::uint64_t idle_since_ns = 0;     // 0: it is not idle
  };
  struct Orphans;
  static Orphans& orphans();

  void note_idle(std::uint64_t now_ns);
  void let_go(std::uint64_t now_ns);

  std::vector<Kept> kept_;
};

}  // namespace gpusock::proxy::fabric
