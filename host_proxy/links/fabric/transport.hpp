#pragma once
/// @file One connection on an endpoint that it shares with others: its writes complete, and arrive, in any order.
///
/// Sending: fragment number n carries the sequence number n modulo kWindow. At most kFragmentsMax fragments are
/// unacknowledged, so that the receiver can tell apart all fragments that may arrive. A fragment's memory may be reused
/// once its write is complete *here*; its sequence number only after the peer's credit has covered it as well.
/// Receiving: fragments arrive in any order and are taken in order. Each arrival is checked against what was granted.
/// Credit: one write at a time, so that an older one cannot overtake a newer one and stay in memory. Both words of the
/// credit only grow.

#include "host_proxy/links/fabric/layout.hpp"
#include "host_proxy/links/fabric/port.hpp"
#include "host_proxy/links/one_sided_transport.hpp"
#include "host_proxy/memory/segment.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::proxy::fabric {

class PeerEndpoint;

/// A connection's memory and its registrations.
struct FabricMemory {
  std::shared_ptr<Segment> segment;
  std::unique_ptr<FabricRegistration> target;  ///< the peer's credit and the rx ring: what the peer may write
  std::unique_ptr<FabricRegistration> source;  ///< what this side writes from; nullptr if the provider needs none
};

class FabricTransport final : public OneSidedTransport {
 public:
  /// Takes an index and registers memory. `sends_grant`: true on the acceptor, whose memory the peer does not know yet:
  /// the set-up words are then the grant. Throws Error (ENOBUFS, or the fabric's error).
  FabricTransport(std::shared_ptr<PeerEndpoint> peer, std::shared_ptr<Segment> segment, bool sends_grant);
  /// If writes may still be under way, the memory stays registered for a while, and the index is not used again.
  ~FabricTransport();

  /// What the peer must know about this side's memory and endpoint.
  Grant grant() const;
  /// Takes the peer's grant. Returns 0; EPROTO if it is invalid; ENOMEM if there is no memory for the peer's address.
  int take_grant(const Grant& grant);

  std::string name() const override;
  bool is_silent() const override { return false; }
  std::vector<std::uint64_t> setup_words() const override;
  int take_word(std::uint64_t word) override;
  bool poll() override;
  std::uint64_t write_bytes_max() const override;
  int write(const std::byte* from, std::uint64_t bytes) override;
  std::uint64_t arrived() const override { return arrived_; }
  bool is_credit_due(std::uint64_t bytes) override;
  int send_credit(std::uint64_t consumed) override;
  bool is_credit_under_way() const override { return credit_busy_; }
  std::uint64_t credits_sent() const override { return credits_sent_; }
  std::uint64_t credits_arrived() const override { return credits_arrived_; }
  void settle() override { settled_ = true; }

  // Called by the endpoint.
  void fail(int error, const std::string& reason);
  void on_arrived(const CompletionData& data);
  void on_written(std::uint32_t operation);
  /// Tells the link to repeat what got -EAGAIN.
  void retry() { wake(); }

 private:
  static constexpr std::uint32_t kCreditOperation = kWindow;

  int start(FabricWrite write, std::uint32_t operation);
  void take_fragments();
  void read_credit();
  void note_news();

  std::shared_ptr<PeerEndpoint> peer_;
  FabricMemory memory_;
  bool sends_grant_;
  std::uint32_t index_ = 0;
  Grant remote_;  // filled as its words arrive
  std::size_t words_taken_ = 0;
  std::uint64_t remote_peer_ = 0;
  bool settled_ = false;
  bool news_ = false;

  std::uint64_t fragments_sent_ = 0;
  std::uint64_t fragments_completed_ = 0;  // up to the first gap
  std::uint64_t fragments_acknowledged_ = 0;
  std::uint32_t busy_ = 0;                             // a bit for each sequence number: its write is not complete here
  std::array<std::uint32_t, kWindow> sent_lengths_{};  // by sequence number
  std::uint64_t credits_arrived_ = 0;

  std::array<std::uint32_t, kWindow> lengths_{};  // by sequence number: arrived and not taken; 0: none
  std::uint64_t fragments_taken_ = 0;
  std::uint64_t fragments_credited_ = 0;  // by the last credit that was sent
  std::uint64_t arrived_ = 0;             // bytes taken
  std::uint64_t credits_sent_ = 0;
  bool credit_busy_ = false;
};

}  // namespace gpusock::proxy::fabric
