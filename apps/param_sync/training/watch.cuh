#pragma once
/// @file What nodes tell each other of their state, from when they are connected to their end; and how a node notices
/// that another one ends.
///
/// A node that ends, for whatever reason, tells all others before it ends its connections. So who hears nothing before
/// a connection's end knows that its peer was killed, or is gone, and did not end for another one's sake.

#include "training/state.cuh"

#include <cerrno>
#include <cstdint>

namespace param_sync {

/// What a node tells each of the others, on the connection that it has accepted from it.
enum Word : std::uint8_t {
  kNothingSaid,
  kHere,         ///< it has accepted all others; all other words are its last one
  kTrained,      ///< it has trained to its end
  kFailed,       ///< it has failed, and does not know which rank is lost
  kInterrupted,  ///< it was told to end
  kFirstLost,    ///< rank 0 is lost; the next value: rank 1
  kEndedMute = 255,
};
static_assert(kFirstLost + kNodesMax < kEndedMute);

/// As the failure of the node that has heard it of `peer`. `heard` is a last word, and not kTrained.
GPUSOCK_FN inline Failure failure_of(std::uint8_t heard, int peer) {
  if (heard == kEndedMute) return {FailureKind::end, peer};
  if (heard == kInterrupted) return {FailureKind::interrupted, peer};
  Failure told{FailureKind::told};
  if (heard >= kFirstLost && heard < kFirstLost + kNodesMax) told.rank = heard - kFirstLost;
  told.teller = peer;
  return told;
}

/// A peer's next word, or its end. One thread.
__device__ inline std::int64_t hear(const NodeState& node, int peer, std::uint8_t* heard, gpusock::Deadline deadline) {
  std::uint8_t said = kNothingSaid;
  const auto got = node.net.recv(gpusock::this_thread(), node.connected_sockets[peer], &said, sizeof said, 0, deadline);
  if (got != -EAGAIN && got != -ETIMEDOUT && got != -ECANCELED)
    heard[peer] = got == 1 ? said : std::uint8_t{kEndedMute};
  return got;
}

/// Some kernel has seen the end of this peer's connections: what it has said before. One block of one thread, when
/// watch_nodes() has ended.
[[maybe_unused]] static __global__ void hear_peer(NodeState node, int peer, std::uint8_t* heard) {
  constexpr std::uint64_t kPatienceNs = 2'000'000'000;
  if (heard[peer] == kNothingSaid) hear(node, peer, heard, gpusock::Deadline::after_ns(kPatienceNs));
}

/// Tells a peer. One that has ended does not hear it, which is no failure here. One thread.
__device__ inline void say(const NodeState& node, int peer, std::uint8_t word) {
  // relaxed: while nodes connect, another kernel may store the socket
  const gpusock::Socket socket = cuda::atomic_ref<gpusock::Socket, cuda::thread_scope_device>(
                                     node.accepted_sockets[peer])
                                     .load(cuda::memory_order_relaxed);
  if (socket < 0) return;
  node.net.send(gpusock::this_thread(), socket, &word, sizeof word, 0, gpusock::Deadline::now());
}

/// Tells all others that are connected, and then the host by `said`. It waits for nobody. One block of one thread.
[[maybe_unused]] static __global__ void tell_word(NodeState node, std::uint8_t word, std::uint64_t* said) {
  for (int peer = 0; peer < node.nodes; ++peer) say(node, peer, word);
  note_said(*said);
}

/// Ends when all nodes have accepted all others: until then a node would take the connections of an executor for those
/// of nodes. One block of one thread.
[[maybe_unused]] static __global__ void meet_nodes(NodeState node, std::uint8_t* heard) {
  const auto deadline = gpusock::Deadline::after_ns(node.timeout_ns);
  const std::uint8_t here = kHere;
  for (int peer = 0; peer < node.nodes; ++peer) {
    if (peer == node.rank) continue;
    const auto sent = node.net.send(gpusock::this_thread(), node.accepted_sockets[peer], &here, sizeof here, 0,
                                    deadline);
    // Where it has ended, its last word says why.
    const bool there = sent == 1 || sent == -ECONNRESET || sent == -EPIPE;
    if (!there) return fail(node, FailureKind::accept, peer, -sent);
  }
  for (int peer = 0; peer < node.nodes; ++peer) {
    if (peer == node.rank) continue;
    const auto got = hear(node, peer, heard, deadline);
    if (heard[peer] == kNothingSaid) return fail(node, FailureKind::accept, peer, -got);
    if (heard[peer] != kHere) return fail(node, failure_of(heard[peer], peer));
    heard[peer] = kNothingSaid;
  }
}

/// Resident. Notices when another node ends before its training does, also one that this node's schedules never meet. A
/// node that has trained to its end says so (leave()); when all others have, it ends. One block of one thread.
static __global__ void watch_nodes(NodeState node, std::uint64_t* ending, std::uint8_t* heard) {
  constexpr std::uint64_t kTurnNs = 1'000'000'000;  // events end a wait; else it only looks whether the run goes on
  __shared__ gpusock::PollEntry entries[kNodesMax];
  const auto thread = gpusock::this_thread();
  int training = 0;  // others
  for (int peer = 0; peer < node.nodes; ++peer) {
    entries[peer] = {node.connected_sockets[peer], gpusock::kPollIn, 0};
    if (entries[peer].socket >= 0) ++training;
  }
  // Relaxed, also below: no data depends on it.
  while (training > 0 && !ended(node) && SystemWord(*ending).load(cuda::memory_order_relaxed) == 0) {
    if (node.net.poll(thread, entries, node.nodes, gpusock::Deadline::after_ns(kTurnNs)) < 0) return;
    for (int peer = 0; peer < node.nodes; ++peer) {
      if (entries[peer].socket < 0 || entries[peer].revents == 0) continue;
      const auto got = hear(node, peer, heard, gpusock::Deadline::now());
      if (got == -EAGAIN) continue;
      if (SystemWord(*ending).load(cuda::memory_order_relaxed) != 0) return;
      if (got != 1) {
        fail(node, FailureKind::end, peer, got < 0 ? -got : 0);
      } else if (heard[peer] != kTrained) {
        fail(node, failure_of(heard[peer], peer));
      }
      entries[peer].socket = -1;
      --training;
    }
  }
}

/// Tells all others that this node has trained to its end, and ends watch_nodes(), whose `ending` is not 0 by now. One
/// block of one thread.
static __global__ void leave(NodeState node) {
  for (int peer = 0; peer < node.nodes; ++peer) {
    if (peer == node.rank) continue;
    say(node, peer, kTrained);
    node.net.shutdown(gpusock::this_thread(), node.connected_sockets[peer], gpusock::Shutdown::both);
  }
}

}  // namespace param_sync
