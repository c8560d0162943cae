#pragma once
/// @file What carries bytes between a socket's rings and its peer.

#include "gpusock/detail/clock.hpp"

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

  /// Does what depends on the time, after progress(); when that is to be done again at the latest, kNever where it need
  /// not.
  virtual std::uint64_t maintain(std::uint64_t /*now_ns*/) { return kNever; }

  /// False if callers reach the peer's rings themselves.
  virtual bool moves_bytes() const { return true; }

  /// Transmits bytes that follow all that was committed, without the ring in between; how many, 0 where the link cannot
  /// or has committed bytes left.
  virtual std::uint64_t transmit_past_ring(const void* /*data*/, std::uint64_t /*bytes*/) { return 0; }

  /// Delivers bytes that follow all that arrived, without the ring in between; how many, 0 where the link cannot or has
  /// none, or the caller has not taken all that arrived.
  virtual std::uint64_t deliver_past_ring(void* /*data*/, std::uint64_t /*bytes*/) { return 0; }

  /// No more is committed: once all is transmitted the peer is told. Once.
  virtual void end_sending() = 0;

  /// The caller reads no more: what arrives is dropped, and the peer is told where the link can.
  virtual void end_receiving() = 0;

  /// The caller closes the socket of a plain TCP connection; end_sending(), end_receiving() and close() follow. From
  /// now on bytes that arrive reset the connection. True if it is to be reset at once: bytes have arrived that the
  /// caller has not received.
  virtual bool refuse_input() { return false; }

  /// The caller closed the socket, after end_sending() and end_receiving(); can_destroy() tells when the link may go.
  virtual void close() = 0;

  /// Has everything that was committed before end_sending() been handed to the network.
  virtual bool finished() const = 0;

  /// Would the peer lose nothing by the link's going now. It goes nevertheless once its caller's linger time is over.
  virtual bool can_destroy() const { return finished(); }

  /// Can progress() move nothing until the peer or the caller acts: then the link need not be looked at before that.
  virtual bool waits_for_credit() const = 0;

  /// Does it wait for words that the peer's NIC writes, of which nobody tells: then it must be looked at again
  /// and again.
  virtual bool watches_memory() const { return false; }

  /// Bytes sent and received since the link was made.
  struct Traffic {
    std::uint64_t tx_bytes = 0;
    std::uint64_t rx_bytes = 0;
  };
  virtual Traffic traffic() const = 0;
};

}  // namespace gpusock::proxy
