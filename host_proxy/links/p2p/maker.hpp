#pragma once
/// @file How two sides agree on the p2p link: the acceptor makes the shared memory, and the connector maps it.

#include "host_proxy/links/link_setup.hpp"
#include "host_proxy/links/p2p/arena_exchange.hpp"
#include "host_proxy/links/p2p/segment_exchange.hpp"

#include <memory>
#include <optional>

namespace gpusock::proxy {

class P2pMaker final : public LinkMaker {
 public:
  /// Both must outlive this object. If kernels may share device memory with those of other processes, maps the arenas
  /// of those (arenas.hpp); make it before kernels run. Throws Error if no Unix socket can be made.
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
