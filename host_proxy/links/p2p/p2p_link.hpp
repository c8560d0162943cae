#pragma once
/// @file The p2p link: the peer's ring is mapped here, and callers store straight into it. The proxy carries no data;
/// it watches the control channel, on which the two sides tell each other how they end.

#include "host_proxy/links/control_channel.hpp"
#include "host_proxy/memory/segment.hpp"

#include <memory>

namespace gpusock::proxy {

class P2pLink final : public Link {
 public:
  /// `side` is 0 on the segment's maker and 1 on its peer: the ring this side sends on.
  P2pLink(std::unique_ptr<ByteStream> stream, std::shared_ptr<Segment> segment, int side, LinkEvents& events)
      : segment_(std::move(segment)), side_(side), control_(std::move(stream), events) {}

  bool pump() override { return control_.pump(); }
  void end_sending() override;
  void end_receiving() override { control_.say_deaf(); }
  void close() override { control_.say_closed(); }
  bool finished() const override { return control_.failed() || (control_.ended() && control_.all_said()); }
  bool waits_for_credit() const override { return false; }
  Traffic traffic() const override;

 private:
  std::shared_ptr<Segment> segment_;
  int side_;
  ControlChannel control_;
};

}  // namespace gpusock::proxy
