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
#include "host_proxy/table/slots.hpp"

#include <cstdint>
#include <memory>
#include <optional>

namespace gpusock::proxy {

class MirroredLink final : public Link, private LinkEvents {
 public:
  /// What the two sides use.
  struct Memory {
    std::shared_ptr<Segment> callers;  ///< in device memory; of both, ring 0 receives and ring 1 sends
    std::shared_ptr<Segment> host;     ///< the link's
    std::uint64_t* arrived = nullptr;  ///< where a network card says what has arrived, and tells nobody; nullptr: the
                                       ///< link says it
  };

  /// On a connected socket's slot. `events` outlives this, and `copies`.
  MirroredLink(DeviceCopies& copies, const Slots& slots, std::uint32_t slot, const Memory& memory, ByteStream& stream,
               LinkEvents& events);

  /// For the link that it works on: the rings in host memory, and whom to tell.
  const ringbuf::ByteConsumer<>& tx() const { return tx_; }
  const ringbuf::ByteProducer<>& rx() const { return rx_; }
  LinkEvents& events() { return *this; }
  /// Hands the link over, which has `stream`. Once, before anything else.
  void set_link(std::unique_ptr<Link> link) { link_ = std::move(link); }

  /// The rings for callers: in device memory where theirs are to be there, else the link's own. nullptr where there is
  /// no memory (logged). `copies`: nullptr where no rings are in device memory.
  static std::shared_ptr<Segment> callers_rings(SegmentPool& segments, const DeviceCopies* copies, bool kernels,
                                                const std::shared_ptr<Segment>& host);

  bool pump() override;
  std::uint64_t tend(std::uint64_t now_ns) override { return failed_ ? kNever : link_->tend(now_ns); }
  void end_sending() override { end_wanted_ = true; }
  void end_receiving() override;
  void close() override { link_->close(); }
  bool finished() const override { return failed_ || link_->finished(); }
  bool refuse_input() override { return link_->refuse_input(); }
  bool may_go() const override { return failed_ || link_->may_go(); }
  bool waits_for_credit() const override { return link_->waits_for_credit(); }
  bool watches_memory() const override;
  Traffic traffic() const override { return link_->traffic(); }

 private:
  void pass_on_events();
  void fail(int error);

  void on_ended(std::uint64_t final_position) override { final_ = final_position; }
  void on_peer_deaf() override { events_.on_peer_deaf(); }
  void on_sending_failed(int error) override { events_.on_sending_failed(error); }
  void on_failed(int error) override { links_error_ = error; }

  ByteStream& stream_;  // link_ has it
  LinkEvents& events_;
  std::uint64_t tx_committed_;  // the link's words; the others are the slot's
  std::uint64_t rx_arrived_;
  bool polls_;  // no event tells of what arrives
  ringbuf::ByteConsumer<> tx_;
  ringbuf::ByteProducer<> rx_;
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
