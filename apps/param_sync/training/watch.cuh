#pragma once
/// @file How a node notices that another one ends.

#include "training/state.cuh"

#include <cerrno>
#include <cstdint>

namespace param_sync {

/// What a node tells all others before it ends its connections: one byte to each.
enum FarewellByte : std::uint8_t {
  kNothingSaid,
  kTrained,    ///< it has trained to its end
  kFailed,     ///< it has failed, and does not know which rank is lost
  kFirstLost,  ///< rank 0 is lost; the next value: rank 1
  kEndedMute = 255,
};
static_assert(kFirstLost + kNodesMax < kEndedMute);

/// As the failure of the node that has heard it. `heard` is no other value than kFailed and those after it.
GPUSOCK_FN inline std::int32_t lost_rank_of(std::uint8_t heard) {
  return heard >= kFirstLost && heard < kFirstLost + kNodesMax ? heard - kFirstLost : -1;
}

/// A byte of a peer's farewell, or its end. One thread.
__device__ inline std::int64_t hear(const NodeState& node, int peer, std::uint8_t* heard, gpusock::Deadline deadline) {
  std::uint8_t said = kNothingSaid;
  const auto got = node.net.recv(gpusock::this_thread(), node.connected_sockets[peer], &said, sizeof said, 0, deadline);
  if (got != -EAGAIN && got != -ETIMEDOUT && got != -ECANCELED)
    heard[peer] = got == 1 ? said : std::uint8_t{kEndedMute};
  return got;
}

/// Lanes have seen the end of this peer's connections: what it has said before. One block of one thread, when
/// watch_nodes() has ended.
[[maybe_unused]] static __global__ void hear_peer(NodeState node, int peer, std::uint8_t* heard) {
  constexpr std::uint64_t kPatienceNs = 2'000'000'000;
  if (heard[peer] == kNothingSaid) hear(node, peer, heard, gpusock::Deadline::after_ns(kPatienceNs));
}

/// Tells all others. One block of one thread.
[[maybe_unused]] static __global__ void bid_farewell(NodeState node, std::uint8_t farewell) {
  for (int peer = 0; peer < node.layout.nodes; ++peer) {
    if (peer == node.rank) continue;
    // A peer that has ended does not hear it.
    node.net.send(gpusock::this_thread(), node.accepted_sockets[peer], &farewell, sizeof farewell, 0,
                  gpusock::Deadline::now());
  }
}

/// Resident. Notices when another node ends before its training does, also one that this node's schedules never meet. A
/// node that has trained to its end says so (leave()); when all others have, it ends. One block of one thread.
static __global__ void watch_nodes(NodeState node, std::uint64_t* ending, std::uint8_t* heard) {
  constexpr std::uint64_t kTurnNs = 1'000'000'000;  // events end a wait; else it only looks whether the run goes on
  __shared__ gpusock::PollEntry entries[kNodesMax];
  const auto thread = gpusock::this_thread();
  int training = 0;  // others
  for (int peer = 0; peer < node.layout.nodes; ++peer) {
    entries[peer] = {node.connected_sockets[peer], gpusock::kPollIn, 0};
    if (entries[peer].socket >= 0) ++training;
  }
  // Relaxed, also below: no data depends on it.
  while (training > 0 && !ended(node) && SystemWord(*ending).load(cuda::memory_order_relaxed) == 0) {
    if (node.net.poll(thread, entries, node.layout.nodes, gpusock::Deadline::after_ns(kTurnNs)) < 0) return;
    for (int peer = 0; peer < node.layout.nodes; ++peer) {
      if (entries[peer].socket < 0 || entries[peer].revents == 0) continue;
      const auto got = hear(node, peer, heard, gpusock::Deadline::now());
      if (got == -EAGAIN) continue;
      if (SystemWord(*ending).load(cuda::memory_order_relaxed) != 0) return;
      if (got != 1) {
        fail(node, FailureKind::end, peer, got < 0 ? -got : 0);
      } else if (heard[peer] != kTrained) {
        fail_as_told(node, peer, lost_rank_of(heard[peer]));
      }
      entries[peer].socket = -1;
      --training;
    }
  }
}

/// Tells all others that this node has trained to its end, and ends watch_nodes(), whose `ending` is not 0 by now. One
/// block of one thread.
static __global__ void leave(NodeState node) {
  const auto thread = gpusock::this_thread();
  const std::uint8_t end = kTrained;
  for (int peer = 0; peer < node.layout.nodes; ++peer) {
    if (peer == node.rank) continue;
    // A peer that has left already, or died since, is no failure.
    node.net.send(thread, node.accepted_sockets[peer], &end, sizeof end, 0, gpusock::Deadline::now());
    node.net.shutdown(thread, node.connected_sockets[peer], gpusock::Shutdown::both);
  }
}

}  // namespace param_sync
