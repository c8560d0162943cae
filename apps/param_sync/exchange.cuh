#pragma once
/// @file Training by schedules: the kernel that hands gradients to resident lanes, and the one that watches the others.

#include "executor/handover.cuh"
#include "message.cuh"

namespace param_sync {

/// Computes the layer's gradient by its parameters, and hands it to the lanes that exchange its bucket.
/// `is_first`: no layer's gradients come before this
/// one's.
static __global__ void backward_and_hand_over(NodeState node, int layer, const float* input, const float* delta,
                                              std::uint32_t batch, bool is_first, executor::ExchangeTimes* times) {
  const LayerShape& shape = node.layout.layer[layer];
  if (!going_on(node)) return;
  layer_backward_parameters(shape, blockIdx.x, input, delta, batch, node.gradients + shape.offset);
  __syncthreads();  // the whole block's writes come before its first thread's L9
  if (threadIdx.x != 0) return;
  if (is_first && blockIdx.x == 0) {
    // relaxed: see end_step()
    DeviceWord(times->first_ready_ns).store(gpusock::clock_ns(), cuda::memory_order_relaxed);
  }
  executor::hand_over(node.exchanges[node.exchange_of[layer]]);
}

/// Resident. Notices when another node ends before its training does, also one that this node's schedules never meet. A
/// node that has trained to its end says so: `ending` is not 0 then. One block of one thread.
static __global__ void watch_nodes(NodeState node, std::uint64_t* ending) {
  constexpr std::uint64_t kTurnNs = 5'000'000;
  __shared__ gpusock::PollEntry entries[kNodesMax];
  const auto thread = gpusock::this_thread();
  const char end = 1;
  for (int peer = 0; peer < node.layout.nodes; ++peer) entries[peer] = {node.push_sockets[peer], gpusock::kPollIn, 0};
  while (!ended(node)) {
    if (SystemWord(*ending).load(cuda::memory_order_relaxed) != 0) {  // relaxed: nothing is read on its strength
      for (int peer = 0; peer < node.layout.nodes; ++peer) {
        if (peer != node.rank) {
          node.net.send(thread, node.serve_sockets[peer], &end, sizeof end, 0, gpusock::Deadline::now());
        }
      }
      return;
    }
    if (node.net.poll(thread, entries, node.layout.nodes, gpusock::Deadline::after_ns(kTurnNs)) < 0) return;
    for (int peer = 0; peer < node.layout.nodes; ++peer) {
      if (entries[peer].socket < 0 || entries[peer].revents == 0) continue;
      char said = 0;
      const auto got = node.net.recv(thread, entries[peer].socket, &said, sizeof said, 0, gpusock::Deadline::now());
      if (got == -EAGAIN) continue;
      if (got != 1) fail(node, FailureKind::end, peer, got < 0 ? -got : 0);
      entries[peer].socket = -1;
    }
  }
}

}  // namespace param_sync
