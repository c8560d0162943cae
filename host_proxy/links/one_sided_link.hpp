#pragma once
/// @file The link that sends bytes by one-sided writes into the peer's ring (verbs, fabric). The two sides agree on the
/// control channel how each of them ends.
///
/// When bytes may be overwritten: a byte of the tx ring is given back to callers when the write that carries it is
/// complete. A byte of the peer's rx ring is overwritten only after the peer's credit has passed it.
///
/// Each direction ends with three notices. The sender sends `stopped` with the number of bytes that it ever wrote, once
/// all writes are complete. The receiver sends `quiet` with the number of its credits, once it has all bytes. The
/// sender sends `drained`, once it has all credits. When both directions are drained nothing is under way, so the
/// connection's memory and keys are free for other use: only then does the link announce that it is closed.

#include "host_proxy/links/control_channel.hpp"
#include "host_proxy/links/link.hpp"
#include "host_proxy/links/network_probe.hpp"
#include "host_proxy/links/one_sided_transport.hpp"
#include "socket_table/socket_table.hpp"
#include "ringbuf/byte_ring.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace gpusock::proxy {

class OneSidedLink final : public Link, private LinkEvents {
 public:
  /// Works on `rings` as the proxy reaches them. `events` must outlive the link.
  OneSidedLink(std::unique_ptr<OneSidedTransport> transport, std::unique_ptr<ByteStream> stream,
               const table::RingPair& rings, LinkEvents& events);
  ~OneSidedLink();

  bool progress() override;
  std::uint64_t maintain(std::uint64_t now_ns) override;
  void end_sending() override;
  void end_receiving() override;
  void close() override { closing_ = true; }
  bool finished() const override { return failed_ || (closed_said_ && control_.all_said()); }
  bool can_destroy() const override { return finished() && (failed_ || control_.peer_left()); }
  bool waits_for_credit() const override;
  bool watches_memory() const override;
  Traffic traffic() const override { return {transport_->sent(), transport_->arrived()}; }

 private:
  enum Notice : std::uint64_t { kSetup = 16, kStopped = 17, kQuiet = 18, kDrained = 19 };

  bool transmit();
  bool write_some();
  bool give_back();
  bool receive();
  bool is_possible(std::uint64_t arrived, std::uint64_t consumed) const;
  bool pass_on(std::uint64_t arrived);
  void tell_end();
  bool return_credit(std::uint64_t consumed);
  bool sending_is_over();
  bool waits_for_peer();
  bool has_drained() const { return drained_ && peer_drained_; }
  bool is_ending() const { return end_wanted_ || peer_reads_no_more_ || peer_stopped_ != kUnsaid; }
  bool advance_ending();
  bool take_notice(std::uint64_t kind, std::uint64_t value);
  bool take_word(std::uint64_t word);
  void fail(int error, const std::string& why);

  void on_ended(std::uint64_t final_position) override;
  void on_peer_read_shut_down() override;
  void on_failed(int error) override;

  static constexpr std::uint64_t kUnsaid = ~std::uint64_t{0};

  std::unique_ptr<OneSidedTransport> transport_;
  ByteStream& stream_;  // control_ owns it
  ringbuf::ByteConsumer<> tx_;
  std::uint64_t tx_start_;
  table::RingSetup rx_;
  LinkEvents& events_;
  ControlChannel control_;
  NetworkProbe probe_;

  // Bytes of the connection.
  std::uint64_t given_back_ = 0;  // of the tx ring, to callers
  std::uint64_t unsent_ = 0;      // committed and not sent, at the last look
  std::uint64_t probed_ = 0;      // sent before the last probe
  std::uint64_t arrived_ = 0;     // arrived, and passed on
  std::uint64_t uncredited_ = 0;  // consumed and not reported, at the last look
  bool callers_lead_ = false;     // at the last look callers had consumed bytes whose arrival was not reported yet
  std::uint64_t peer_final_ = kUnsaid;    // how many the peer will send
  std::uint64_t peer_stopped_ = kUnsaid;  // how many the peer has sent
  std::uint64_t peer_quiet_ = kUnsaid;    // how many credits the peer has sent
  bool peer_drained_ = false;
  bool peer_reads_no_more_ = false;
  bool discards_ = false;  // this side reads no more
  bool end_wanted_ = false;
  bool stopped_ = false;
  bool quiet_ = false;
  bool drained_ = false;
  bool closing_ = false;
  bool closed_said_ = false;
  bool failed_ = false;
};

}  // namespace gpusock::proxy
