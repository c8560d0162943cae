#pragma once
/// @file Callers' rings in device memory, on any link: the link has rings in host memory, and the proxy copies the
/// bytes between the two.
///
/// Of the four words two are doubled. What callers have committed becomes the link's to send once it has been copied,
/// and what the link has delivered becomes the callers' once it has been copied. Space is given back in both rings by
/// one word. So a link's credits are what callers have consumed, and no byte is overwritten while it is copied.

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
  /// `callers`, `host`: both pairs of rings as the proxy reaches them, with the slot's words; `host.rx.committed` may
  /// be another word, which then says how much has arrived. `memory` owns their memory. The references outlive this.
  MirroredLink(DeviceCopies& copies, const ConnectionRings& memory, const table::RingPair& callers,
               const table::RingPair& host, ByteStream& stream, LinkEvents& events);

  /// What the link works on: the rings in host memory, and the receiver of its events.
  const table::RingPair& rings() const { return host_; }
  LinkEvents& events() { return *this; }
  /// Hands the link over, which has `stream`. Once, before anything else.
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

  ByteStream& stream_;  // link_ has it
  LinkEvents& events_;
  std::uint64_t tx_committed_;  // the doubled words
  std::uint64_t rx_committed_;
  bool polls_;  // there is no event for what arrives
  table::RingPair host_;
  RingMirror out_;
  RingMirror in_;
  std::unique_ptr<Link> link_;
  std::optional<std::uint64_t> final_;  // events that wait for the copies of what came before them
  int links_error_ = 0;
  bool end_wanted_ = false;
  bool end_sent_ = false;
  bool read_shut_down_ = false;
  bool failed_ = false;
};

}  // namespace gpusock::proxy
