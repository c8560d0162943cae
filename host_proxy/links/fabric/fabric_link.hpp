#pragma once
/// @file The fabric link: ring bytes are written into the peer's ring by the fabric, with completion data that says so;
/// credit comes back the same way. How each side ends is said on the control channel.
///
/// Ending, for each direction: its sender says `stopped` with the number of chunks that it ever wrote, once all of them
/// are complete there; the receiver, once it has them all, says `quiet` with the number of its credits; the sender,
/// once it has those, says `drained`. When both directions are drained nothing is on the way, and the connection's
/// index and memory are free for other use: only then it is said to be closed.

#include "host_proxy/links/control_channel.hpp"
#include "host_proxy/links/fabric/channel.hpp"
#include "host_proxy/links/link.hpp"
#include "host_proxy/links/network_probe.hpp"
#include "ringbuf/byte_ring.hpp"

#include <cstdint>
#include <memory>

namespace gpusock::proxy::fabric {

class FabricLink final : public Link, private LinkEvents, private ControlNotices {
 public:
  /// `says_grant`: the peer does not know this side's memory yet (the acceptor's). `events` outlives the link.
  FabricLink(std::unique_ptr<FabricChannel> channel, bool says_grant, std::unique_ptr<ByteStream> stream,
             ringbuf::ByteConsumer<> tx, ringbuf::ByteProducer<> rx, LinkEvents& events);
  ~FabricLink();

  bool pump() override;
  std::uint64_t tend(std::uint64_t now_ns) override;
  void end_sending() override;
  void end_receiving() override;
  void close() override { closing_ = true; }
  bool finished() const override { return failed_ || (closed_said_ && control_.all_said()); }
  bool may_go() const override { return finished() && (failed_ || control_.peer_left()); }
  bool waits_for_credit() const override;
  Traffic traffic() const override { return {sent_, arrived_}; }

 private:
  enum Notice : std::uint64_t { kWord = 16, kStopped = 17, kQuiet = 18, kDrained = 19 };

  bool transmit();
  bool send_chunk(std::uint64_t unsent);
  bool give_back();
  bool deliver();
  bool take_chunk(std::uint64_t bytes);
  void tell_end();
  void credit();
  std::uint64_t consumed();
  bool sending_is_over();
  bool waits_for_peer();
  bool say_where_it_stands();
  bool take_word(std::uint64_t word);
  void fail(int error);

  void on_ended(std::uint64_t final_position) override;
  void on_peer_deaf() override;
  void on_failed(int error) override;
  bool on_notice(std::uint64_t kind, std::uint64_t value) override;

  std::unique_ptr<FabricChannel> channel_;
  ringbuf::ByteConsumer<> tx_;
  ringbuf::ByteProducer<> rx_;
  LinkEvents& events_;
  std::uint64_t tx_start_;
  std::uint64_t rx_start_;
  ControlChannel control_;
  NetworkProbe probe_;
  std::uint64_t probed_ = 0;  // bytes sent before the last probe
  Grant heard_;               // the peer's, as far as its words have come
  std::size_t words_heard_ = 0;

  std::uint64_t sent_ = 0;        // bytes written or being written
  std::uint64_t given_back_ = 0;  // of them, whose ring space is free again
  std::uint64_t arrived_ = 0;     // bytes taken
  std::uint64_t rx_capacity_;
  bool discard_ = false;    // this side reads no more
  bool peer_deaf_ = false;  // the other side reads no more
  bool end_wanted_ = false;
  bool closing_ = false;
  bool closed_said_ = false;
  bool failed_ = false;

  static constexpr std::uint64_t kUnsaid = ~std::uint64_t{0};
  std::uint64_t peer_final_ = kUnsaid;
  std::uint64_t peer_stopped_ = kUnsaid;  // chunks
  std::uint64_t peer_quiet_ = kUnsaid;    // credits
  bool peer_drained_ = false;
  bool stopped_ = false;
  bool quiet_ = false;
  bool drained_ = false;
};

}  // namespace gpusock::proxy::fabric
