#pragma once
/// @file The p2p link: the peer's ring is mapped here, and callers store straight into it. The proxy carries no data;
/// it watches the control channel, on which the two sides tell each other how they end.

#include "host_proxy/links/control_channel.hpp"
#include "host_proxy/memory/segment.hpp"
#include "socket_table/socket_table.hpp"

#include <memory>

namespace gpusock::proxy {

class P2pLink final : public Link {
 public:
  /// The rings' words are in `memory`.
  P2pLink(std::unique_ptr<ByteStream> stream, const ConnectionRings& memory, const table::RingPair& rings,
          LinkEvents& events)
      : memory_(memory), rings_(rings), control_(std::move(stream), events) {}

  bool progress() override { return control_.progress(); }
  bool moves_bytes() const override { return false; }
  void end_sending() override;
  void end_receiving() override { control_.say_read_shut_down(); }
  void close() override { control_.say_closed(); }
  bool finished() const override { return control_.failed() || (control_.ended() && control_.all_said()); }
  bool waits_for_credit() const override { return false; }
  Traffic traffic() const override;

 private:
  ConnectionRings memory_;
  table::RingPair rings_;
  ControlChannel control_;
};

}  // namespace gpusock::proxy
