#pragma once
/// @file Agreeing on the tcp link: there is nothing to agree on.

#include "host_proxy/links/link_setup.hpp"
#include "host_proxy/memory/segment.hpp"
#include "host_proxy/memory/device_copies.hpp"

#include <memory>

namespace gpusock::proxy {

class TcpMaker final : public LinkMaker {
 public:
  /// Both outlive it. `copies`: nullptr where no rings are in device memory.
  explicit TcpMaker(SegmentPool& segments, DeviceCopies* copies = nullptr) : segments_(segments), copies_(copies) {}

  LinkKind kind() const override { return LinkKind::tcp; }
  std::unique_ptr<LinkSetup> offer(const LinkRequest& request, ReadySink&) override { return make(request); }
  std::unique_ptr<LinkSetup> answer(const LinkRequest& request, std::span<const std::byte>, ReadySink&) override {
    return make(request);
  }

  void tend(std::uint64_t) override {
    if (copies_ != nullptr) copies_->collect();
  }

  /// False if make() has no ring memory now and will have some when another connection has ended.
  bool has_room(bool kernels) const {
    return segments_.has_room(RingPlacement::host) && segments_.has_room(segments_.placement_for(kernels));
  }

  /// Either half, also of a connection without a handshake.
  std::unique_ptr<LinkSetup> make(const LinkRequest& request);

 private:
  SegmentPool& segments_;
  DeviceCopies* copies_;
};

}  // namespace gpusock::proxy
