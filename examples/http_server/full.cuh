#pragma once
/// @file What a block does with new clients while all seats are taken. The client that has sent no whole request for
/// the longest time makes room, or the new client is answered with 503.

#include "examples/http_server/connection.cuh"

#include <gpusock/device.cuh>

namespace http {

/// What happens while all connections are taken.
struct FullRule {
  std::uint64_t displace_ns;  ///< after so long without a whole request a client makes room for a new one
  bool refuses;               ///< if none makes room soon: true, a new client gets 503; false, it waits in the backlog
};

/// If a client is to make room within this time, a new client waits in the backlog and is not refused. It waits no
/// longer than this, since the others may send whole requests again and again.
inline constexpr unsigned long long kPatienceNs = 1'000'000'000;

/// Clients of one block that were answered with 503. Their connections stay open until they have had time to read that:
/// closing at once would reset those whose request is still arriving, and the answer could be lost. One thread uses it.
class TurnedAway {
 public:
  __device__ void clear() {
    for (gpusock::Socket& socket : sockets_) socket = -1;
    next_ = 0;
  }

  /// Answers a client with 503, whatever it asks.
  __device__ void add(const gpusock::Net& net, gpusock::Socket socket) {
    constexpr const char kAnswer[] =
        "HTTP/1.1 503 Service Unavailable\r\nServer: gpusock\r\nContent-Type: text/plain\r\nContent-Length: 24\r\n"
        "Retry-After: 1\r\nConnection: close\r\n\r\n503 Service Unavailable\n";
    const auto me = gpusock::this_thread();
    net.send(me, socket, kAnswer, sizeof kAnswer - 1, gpusock::kDontWait);  // fits into the empty ring
    net.shutdown(me, socket, gpusock::Shutdown::write);
    drop(net, next_);  // if there are more clients than room, the oldest one is dropped
    sockets_[next_] = socket;
    until_ns_[next_] = gpusock::clock_ns() + kPartingNs;
    next_ = (next_ + 1) % kRoom;
  }

  /// Closes the connections whose time is over.
  __device__ void expire(const gpusock::Net& net) {
    for (unsigned i = 0; i < kRoom; ++i) {
      if (sockets_[i] >= 0 && until_ns_[i] <= gpusock::clock_ns()) drop(net, i);
    }
  }

  /// When the next connection is to be closed. The greatest number: there is none.
  __device__ unsigned long long due_ns() const {
    unsigned long long due_ns = ~0ull;
    for (unsigned i = 0; i < kRoom; ++i) {
      if (sockets_[i] >= 0 && until_ns_[i] < due_ns) due_ns = until_ns_[i];
    }
    return due_ns;
  }

  static constexpr unsigned kRoom = 16;

 private:
  __device__ void drop(const gpusock::Net& net, unsigned i) {
    if (sockets_[i] >= 0) net.close(gpusock::this_thread(), sockets_[i]);
    sockets_[i] = -1;
  }

  gpusock::Socket sockets_[kRoom];
  unsigned long long until_ns_[kRoom];
  unsigned next_;
};

/// What a block knows about its seats; in its shared memory.
struct Seating {
  unsigned free;                        ///< seats that a client may take
  bool all_taken;                       ///< true if all seats of all blocks are taken
  unsigned long long idle_longest_ns;   ///< since when the most idle client sends no whole request; ~0ull: none
  unsigned long long displace_at_ns;    ///< from when on that client makes room
  unsigned long long patient_until_ns;  ///< until when new clients wait for a seat that is soon free; 0: they do not

  /// Updates patient_until_ns after the other members have changed.
  __device__ void look_at_time(unsigned long long now_ns) {
    if (free != 0 || !all_taken || displace_at_ns <= now_ns || displace_at_ns - now_ns > kPatienceNs) {
      patient_until_ns = 0;
    } else if (patient_until_ns == 0) {
      patient_until_ns = now_ns + kPatienceNs;
    }
  }

  /// True if new clients get 503 now.
  __device__ bool refuses(const FullRule& rule, unsigned long long now_ns) const {
    if (free != 0 || !all_taken || !rule.refuses || displace_at_ns <= now_ns) return false;
    return patient_until_ns <= now_ns;
  }

  /// True if a new client can be seated or refused now.
  __device__ bool takes_clients(const FullRule& rule, unsigned long long now_ns) const {
    return free != 0 || (all_taken && (displace_at_ns <= now_ns || refuses(rule, now_ns)));
  }
};

}  // namespace http
