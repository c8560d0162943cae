#pragma once
/// @file One connection on an endpoint that it shares with others: which writes are on the way, in both directions.
/// Knows nothing of rings: the link (fabric_link.hpp) does.
///
/// Sending: chunk number n carries sequence n modulo kWindow; at most kChunksMax are not acknowledged, so that the
/// receiver can tell a chunk from every other that may arrive. Its memory may be reused once it is complete *here*; its
/// number once the peer's credit has covered it as well. Receiving: chunks are taken in order, whatever order they
/// arrive in. Each arrival is checked against what was granted. Credit: one write at a time, so that no older one can
/// overtake a newer and stay in memory. Both words only grow.

#include "host_proxy/links/fabric/layout.hpp"
#include "host_proxy/links/fabric/port.hpp"
#include "host_proxy/memory/segment.hpp"
#include "host_proxy/net/network.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace gpusock::proxy::fabric {

class FabricPeer;

/// A connection's memory, as it is registered.
struct FabricMemory {
  std::shared_ptr<Segment> segment;
  std::unique_ptr<Registration> target;  ///< the peer's credit and the rx ring: what the peer may write
  std::unique_ptr<Registration> source;  ///< all of it, for writing from; nullptr where nobody asks
};

class FabricChannel {
 public:
  /// Takes an index and registers memory. Throws Error (ENOBUFS and what the fabric gives).
  FabricChannel(std::shared_ptr<FabricPeer> peer, std::shared_ptr<Segment> segment);
  /// Where writes may still be on the way, the memory stays registered for a while and the index is not used again.
  ~FabricChannel();
  FabricChannel(const FabricChannel&) = delete;
  FabricChannel& operator=(const FabricChannel&) = delete;

  const std::shared_ptr<Segment>& segment() const { return memory_.segment; }
  /// What the peer must know of this side.
  Grant grant() const;
  /// What the peer said of its side. 0; EPROTO: it is invalid; ENOMEM: there is no memory for the peer's address.
  int take_grant(const Grant& grant);
  bool granted() const { return granted_; }
  std::uint64_t peer_ring_bytes() const { return remote_.ring_bytes; }

  /// To be told when something completed.
  void set_sink(ReadySink* sink) { sink_ = sink; }
  /// An errno once the connection cannot go on.
  int error() const { return error_; }
  void fail(int error, const std::string& reason);
  /// Has anything completed since it was last asked.
  bool take_news();

  // Sending.
  bool can_send() const;
  /// Starts the next chunk, of `bytes` at `from`, into the peer's ring at `index`. 0, -EAGAIN, or a negated errno.
  int send(const std::byte* from, std::uint64_t bytes, std::uint64_t index);
  /// Bytes of the oldest chunk whose memory was not given back yet, if it can be: then it is.
  std::uint64_t give_back();
  bool all_complete() const { return chunks_given_back_ == chunks_sent_ && !credit_busy_; }
  std::uint64_t chunks_sent() const { return chunks_sent_; }
  std::uint64_t consumed_by_peer() const { return peers_.consumed; }
  std::uint64_t credits_arrived() const { return credits_arrived_; }

  // Receiving.
  /// Bytes of the chunk that follows all that were taken; 0: it has not arrived.
  std::uint64_t next_chunk() const { return lengths_[chunks_taken_ % kWindow]; }
  void take_chunk();
  std::uint64_t chunks_taken() const { return chunks_taken_; }
  const Credit& credited() const { return credited_; }
  std::uint64_t credits_sent() const { return credits_sent_; }
  bool credit_busy() const { return credit_busy_; }
  /// Tells the peer that `consumed` bytes are gone from the ring, and which chunks were taken. -EAGAIN: not now.
  int send_credit(std::uint64_t consumed);

  /// Both sides have said that nothing is on the way any more.
  void settle() { settled_ = true; }

  // The endpoint's news.
  void on_arrived(const CompletionData& data);
  void on_written(std::uint32_t operation);
  /// The link may try again what could not be done.
  void retry() {
    if (sink_ != nullptr) sink_->on_ready();
  }

 private:
  static constexpr std::uint32_t kCreditOperation = kWindow;

  int write(Write write, std::uint32_t operation);
  void wake();
  void read_credit();

  std::shared_ptr<FabricPeer> peer_;
  FabricMemory memory_;
  std::uint32_t index_ = 0;
  Grant remote_;
  std::uint64_t remote_peer_ = 0;
  bool granted_ = false;
  bool settled_ = false;
  bool news_ = false;
  int error_ = 0;
  ReadySink* sink_ = nullptr;

  std::uint64_t chunks_sent_ = 0;
  std::uint64_t chunks_given_back_ = 0;
  std::uint64_t bytes_sent_ = 0;
  std::uint32_t busy_ = 0;                             // by sequence: not complete here
  std::array<std::uint32_t, kWindow> sent_lengths_{};  // by sequence
  Credit peers_;                                       // as last read
  std::uint64_t credits_arrived_ = 0;

  std::array<std::uint32_t, kWindow> lengths_{};  // by sequence: arrived and not taken
  std::uint64_t chunks_taken_ = 0;
  Credit credited_;  // as last sent: what the peer may rely on
  std::uint64_t credits_sent_ = 0;
  bool credit_busy_ = false;
};

}  // namespace gpusock::proxy::fabric
