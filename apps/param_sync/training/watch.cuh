#pragma once
/// @file How a node notices that another one ends.

#include "training/state.cuh"

namespace param_sync {

/// Resident. Notices when another node ends before its training does, also one that this node's schedules never meet. A
/// node that has trained to its end says so (leave()); when all others have, it ends. One block of one thread.
static __global__ void watch_nodes(NodeState node, std::uint64_t* ending) {
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
      char said = 0;
      const auto got = node.net.recv(thread, entries[peer].socket, &said, sizeof said, 0, gpusock::Deadline::now());
      if (got == -EAGAIN) continue;
      if (SystemWord(*ending).load(cuda::memory_order_relaxed) != 0) return;
      if (got != 1) fail(node, FailureKind::end, peer, got < 0 ? -got : 0);
      entries[peer].socket = -1;
      --training;
    }
  }
}

/// Tells all others that this node has trained to its end, and ends watch_nodes(), whose `ending` is not 0 by now. One
/// block of one thread.
static __global__ void leave(NodeState node) {
  const auto thread = gpusock::this_thread();
  const char end = 1;
  for (int peer = 0; peer < node.layout.nodes; ++peer) {
    if (peer == node.rank) continue;
    // A peer that has left already, or died since, is no failure.
    node.net.send(thread, node.accepted_sockets[peer], &end, sizeof end, 0, gpusock::Deadline::now());
    node.net.shutdown(thread, node.connected_sockets[peer], gpusock::Shutdown::both);
  }
}

}  // namespace param_sync
