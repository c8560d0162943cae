#pragma once
/// @file Lets any link serve callers' rings in device memory: the link has rings in host memory, and the proxy copies
/// the bytes between the two.
///
/// Of the four words, the two `committed` exist twice: the link may send what callers have committed once it is copied,
/// and callers may read what the link has delivered once it is copied. Each `consumed` gives space back in both rings.
/// So the link's credit is what callers have consumed, and no byte is overwritten while it is copied.

#include "host_proxy/links/link.hpp"
#include "host_proxy/memory/ring_mirror.hpp"
#include "host_proxy/memory/segment.hpp"
#include "host_proxy/net/network.hpp"
#include "socket_table/socket_table.hpp"

#include <cstdint>
#include <memory>
#include <optional>

namespace gpusock::proxy {

class MirroredLink final : public Link, private LinkEvents {
 public:
  /// Both `callers` and `host` are pairs of rings as the proxy reaches them, with the slot's words. `host.rx.committed`
  /// may be another word, which then says how much has arrived. `memory` owns the memory of both. The references must
  /// outlive this object.
  MirroredLink(DeviceCopies& copies, const ConnectionRings& memory, const table::RingPair& callers,
               const table::RingPair& host, ByteStream& stream, LinkEvents& events);

  /// What the link is made with: the rings in host memory, and the receiver of its events.
  const table::RingPair& rings() const { return host_; }
  LinkEvents& events() { return *this; }
  /// Takes over the link, which owns `stream`. Call it once, before any function of Link.
  void set_link(std::unique_ptr<Link> link) { link_ = std::move(link); }

  bool progress() override;
  std::uint64_t maintain(std::uint64_t now_ns) override { return failed_ ? detail::kNever : link_->maintain(now_ns); }
  void end_sending() override { end_wanted_ = true; }
  void end_receiving() override;
  void close() override { link_->close(); }
  bool finished() const override { return failed_ || link_->finished(); }
  bool refuse_input() override { return link_->refuse_input(); }
  bool can_destroy() const override { return failed_ || link_->can_destroy(); }
  bool waits_for_credit() const override { return link_->waits_for_credit(); }
  bool watches_memory() const override;
  Traffic traffic() const override { return link_->traffic(); }

 private:
  bool move();
  void pass_on_events();
  void fail(int error);

  void on_ended(std::uint64_t final_position) override { final_ = final_position; }
  void on_peer_read_shut_down() override { events_.on_peer_read_shut_down(); }
  void on_sending_failed(int error) override { events_.on_sending_failed(error); }
  void on_failed(int error) override { links_error_ = error; }

  ByteStream& stream_;  // link_ owns it
  LinkEvents& events_;
  std::uint64_t tx_committed_;  // the link's own words
  std::uint64_t rx_committed_;
  bool polls_;  // no event reports arriving bytes
  table::RingPair host_;
  RingMirror out_;
  RingMirror in_;
  std::unique_ptr<Link> link_;
  std::optional<std::uint64_t> final_;  // events that wait until the bytes before them are copied
  int links_error_ = 0;
  bool end_wanted_ = false;
  bool end_sent_ = false;
  bool read_shut_down_ = false;
  bool failed_ = false;
};

}  // namespace gpusock::proxy
