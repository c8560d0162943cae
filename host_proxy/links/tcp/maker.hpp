#pragma once
/// @file Makes the tcp link. The peers have nothing to agree on.

#include "host_proxy/links/link_setup.hpp"
#include "host_proxy/memory/segment.hpp"

#include <memory>

namespace gpusock::proxy {

class TcpMaker final : public LinkMaker {
 public:
  /// Takes rings from `segments`, which must outlive this object.
  explicit TcpMaker(SegmentPool& segments) : segments_(segments) {}

  LinkKind kind() const override { return LinkKind::tcp; }
  std::unique_ptr<LinkSetup> start(const LinkRequest& request, std::span<const std::byte> offer,
                                   ReadySink& sink) override;
  bool has_room(bool kernels) const override { return segments_.has_room(kernels); }

 private:
  SegmentPool& segments_;
};

}  // namespace gpusock::proxy
