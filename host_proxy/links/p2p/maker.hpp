#pragma once
/// @file Agreeing on the p2p link: the acceptor makes the shared memory, and the connector maps it.

#include "host_proxy/links/link_setup.hpp"
#include "host_proxy/links/p2p/arena_exchange.hpp"
#include "host_proxy/links/p2p/segment_exchange.hpp"

#include <memory>
#include <optional>

namespace gpusock::proxy {

class P2pMaker final : public LinkMaker {
 public:
  /// Both outlive it. Where kernels may use device memory with those of other processes, this maps what those have of
  /// it (arenas.hpp): made before kernels run. Throws Error if no Unix socket can be made.
  P2pMaker(PosixNetwork& network, SegmentPool& segments);

  LinkKind kind() const override { return LinkKind::p2p; }
  std::unique_ptr<LinkSetup> start(const LinkRequest& request, std::span<const std::byte> offer,
                                   ReadySink& sink) override;
  bool poll(std::uint64_t /*now_ns*/) override {
    full_backlogs_.tell();
    return false;
  }
  void maintain(std::uint64_t) override { offers_.serve(); }
  bool wants_polling() const override { return !full_backlogs_.empty(); }

 private:
  PosixNetwork& network_;
  SegmentPool& segments_;
  std::optional<GivenArenas> given_;
  SegmentOffers offers_;
  FullBacklogs full_backlogs_;
};

}  // namespace gpusock::proxy
