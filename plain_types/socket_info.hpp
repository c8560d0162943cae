#pragma once
/// @file The state of one socket, for people: what Context::sockets() returns and gpusock-top shows.

#include "plain_types/endpoint.hpp"
#include "plain_types/ring_placement.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace gpusock {

/// What a socket is doing.
enum class SocketState : std::uint8_t {
  opening,    ///< connecting, or agreeing on a link
  listening,  ///< waiting for connections
  waiting,    ///< connected, and not accepted yet
  connected,  ///< open: its caller may send and receive
  closing,    ///< closed by its caller; what was sent is still being delivered
  failed,     ///< broken; its caller has not closed it yet
};

/// The state's name in small letters.
std::string_view to_string(SocketState state);

/// Where the rings of a connection lie: their bytes, and each word at the place where it is polled
/// (docs/memory-model.md). Each is in host or device memory; automatic while there are no rings.
struct RingPlaces {
  RingPlacement bytes = RingPlacement::automatic;         ///< both rings' bytes
  RingPlacement tx_committed = RingPlacement::automatic;  ///< how far this side has sent
  RingPlacement tx_consumed = RingPlacement::automatic;   ///< how far the peer, or the link, has taken that
  RingPlacement rx_committed = RingPlacement::automatic;  ///< how far bytes have arrived
  RingPlacement rx_consumed = RingPlacement::automatic;   ///< how far this side has received
  RingPlacement status = RingPlacement::automatic;        ///< the status: errors, the end of the stream

  bool operator==(const RingPlaces&) const = default;  ///< true if all lie in the same places
};

/// One socket at one moment. Bytes are counted since the connection was made.
struct SocketInfo {
  std::int32_t handle = -1;                  ///< what its callers pass; -1: an incoming connection that has none yet
  SocketState state = SocketState::opening;  ///< what it is doing
  std::int32_t error = 0;                    ///< errno of a failed socket
  bool peer_ended = false;                   ///< the peer sends no more
  bool peer_read_shut_down = false;          ///< the peer reads no more
  LinkKind link = LinkKind::automatic;       ///< automatic: not agreed on yet; for a listener: what it offers
  std::string link_reason;     ///< why no better link is used; empty if this is the best one, or was named. While the
                               ///< socket is opening: why the peer may not speak gpusock
  Endpoint local;              ///< family 0 while it is not known
  Endpoint peer;               ///< family 0 for a listener
  std::uint64_t tx_bytes = 0;  ///< handed to the network (tcp), or stored into the peer's ring (p2p)
  std::uint64_t rx_bytes = 0;  ///< arrived from the peer, read or not
  std::uint64_t tx_ring_fill = 0;  ///< sent and not in the network yet (tcp), or not read by the peer yet (p2p)
  std::uint64_t rx_ring_fill = 0;  ///< arrived and not read yet
  std::uint64_t ring_bytes = 0;    ///< capacity of each ring; 0 while there is none
  RingPlaces places;               ///< where these rings lie
  std::uint64_t age_ns = 0;        ///< time since it was opened or accepted
  std::int64_t block = -1;    ///< index in its grid (x fastest) of the block that opened or accepted it; -1: a host
                              ///< thread, or no caller yet
  std::uint32_t pending = 0;  ///< for a listener: connections that came in and were not accepted yet
  std::uint32_t backlog = 0;  ///< for a listener: how many connections may be pending
};

}  // namespace gpusock
