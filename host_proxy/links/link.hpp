#pragma once
/// @file The interface of a link, which carries bytes between a socket's rings and its peer.

#include "plain_types/clock.hpp"
#include "plain_types/past_ring.hpp"

#include <cstdint>

namespace gpusock::proxy {

/// The events that a link reports to its connection.
class LinkEvents {
 public:
  virtual void on_ended(std::uint64_t final_position) = 0;  ///< the peer's stream ends at this position of the rx ring
  virtual void on_peer_read_shut_down() = 0;                ///< the peer reads no more
  /// The connection is gone, so nothing can be sent any more; `error` is an errno. The link still delivers the bytes
  /// that arrived before. After them it calls on_ended(), if the peer's stream has ended, and on_failed().
  virtual void on_sending_failed(int error) { on_failed(error); }
  virtual void on_failed(int error) = 0;  ///< the connection is gone, and nothing arrives any more; `error` is an errno

 protected:
  ~LinkEvents() = default;
};

/// One connection's link: transmits committed bytes, delivers arrived ones, returns credit, reports the end and errors.
class Link {
 public:
  virtual ~Link() = default;

  /// Moves the connection forward as far as that is possible now; true if anything was moved. Does not wait.
  virtual bool progress() = 0;

  /// Does the work that depends on the time. Called after progress(). Returns the latest time for the next call; kNever
  /// if the next call is only needed after an event.
  virtual std::uint64_t maintain(std::uint64_t /*now_ns*/) { return detail::kNever; }

  /// False if callers access the peer's rings directly.
  virtual bool moves_bytes() const { return true; }

  /// Sends the bytes that follow all committed ones, or receives the bytes that follow all arrived ones, without the
  /// ring in between. Returns how many; 0 if the link cannot do this, or if the ring is not empty.
  virtual std::uint64_t move_past_ring(const detail::PastRing& /*wanted*/) { return 0; }

  /// Callers commit nothing more. The link tells the peer that the stream ends after what was committed. Further calls
  /// have no effect.
  virtual void end_sending() = 0;

  /// The caller reads no more. The link drops the bytes that arrive, and tells the peer if it can.
  virtual void end_receiving() = 0;

  /// The caller closes the socket of a plain TCP connection; end_sending(), end_receiving() and close() follow. From
  /// now on arriving bytes reset the connection. Returns true if the connection must be reset at once, because bytes
  /// have arrived that the caller has not received.
  virtual bool refuse_input() { return false; }

  /// The caller has closed the socket. Called after end_sending() and end_receiving(); can_destroy() says when the link
  /// may be destroyed.
  virtual void close() = 0;

  /// True if the network has everything that was committed before end_sending().
  virtual bool finished() const = 0;

  /// True if the peer loses nothing when the link is destroyed now. After its caller's linger time it is destroyed
  /// anyway.
  virtual bool can_destroy() const { return finished(); }

  /// True if the link waits for callers to give ring space back: they must then ring the doorbell when they do.
  virtual bool waits_for_credit() const = 0;

  /// True if the link waits for words or copies that change without an event: progress() must be called repeatedly.
  virtual bool watches_memory() const { return false; }

  /// Bytes sent and received since the link was made.
  struct Traffic {
    std::uint64_t tx_bytes = 0;
    std::uint64_t rx_bytes = 0;
  };
  virtual Traffic traffic() const = 0;
};

}  // namespace gpusock::proxy
