#pragma once
/// @file What carries bytes between a socket's rings and its peer.

#include "plain_types/clock.hpp"
#include "plain_types/past_ring.hpp"

#include <cstdint>

namespace gpusock::proxy {

/// What a link tells its connection.
class LinkEvents {
 public:
  virtual void on_ended(std::uint64_t final_position) = 0;  ///< the peer's stream ends at this position of the rx ring
  virtual void on_peer_read_shut_down() = 0;                ///< the peer reads no more
  /// Nothing can be sent any more, as the connection is gone: `error` is an errno. Bytes that arrived before are still
  /// being delivered; on_ended() and on_failed() follow them.
  virtual void on_sending_failed(int error) { on_failed(error); }
  virtual void on_failed(int error) = 0;  ///< the connection is gone, and nothing arrives any more; `error` is an errno

 protected:
  ~LinkEvents() = default;
};

/// One connection's link: transmits committed bytes, delivers arrived ones, returns credit, reports the end and errors.
class Link {
 public:
  virtual ~Link() = default;

  /// Moves what can be moved now; true if anything was. Does not wait.
  virtual bool progress() = 0;

  /// Does what depends on the time, after progress(). Returns when to call it again at the latest; kNever if only after
  /// an event.
  virtual std::uint64_t maintain(std::uint64_t /*now_ns*/) { return detail::kNever; }

  /// False if callers reach the peer's rings themselves.
  virtual bool moves_bytes() const { return true; }

  /// Sends bytes that follow all that was committed, or receives bytes that follow all that arrived, without the ring
  /// in between. Returns how many; 0 if the link cannot, or the ring is not empty.
  virtual std::uint64_t move_past_ring(const detail::PastRing& /*wanted*/) { return 0; }

  /// No more is committed: the link tells the peer once all is transmitted. Call it once.
  virtual void end_sending() = 0;

  /// The caller reads no more: the link drops what arrives, and tells the peer if it can.
  virtual void end_receiving() = 0;

  /// The caller closes the socket of a plain TCP connection; end_sending(), end_receiving() and close() follow. From
  /// now on bytes that arrive reset the connection. True if it is to be reset at once: bytes have arrived that the
  /// caller has not received.
  virtual bool refuse_input() { return false; }

  /// The caller closed the socket, after end_sending() and end_receiving(); can_destroy() says when the link may be
  /// destroyed.
  virtual void close() = 0;

  /// True if the network has everything that was committed before end_sending().
  virtual bool finished() const = 0;

  /// True if the peer loses nothing when the link is destroyed now. After its caller's linger time it is destroyed
  /// anyway.
  virtual bool can_destroy() const { return finished(); }

  /// True if progress() can move nothing before the caller has given ring space back.
  virtual bool waits_for_credit() const = 0;

  /// True if it waits for words that a NIC writes without an event: then progress() must be called again and again.
  virtual bool watches_memory() const { return false; }

  /// Bytes sent and received since the link was made.
  struct Traffic {
    std::uint64_t tx_bytes = 0;
    std::uint64_t rx_bytes = 0;
  };
  virtual Traffic traffic() const = 0;
};

}  // namespace gpusock::proxy
