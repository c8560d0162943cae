#pragma once
/// @file The worker's side of the weights: what owners publish arrives where the forward kernels read it.

#include "training/shard.cuh"

namespace param_sync {

/// Resident, one block for each peer: receives that owner's new weights straight into the model.
///
/// Nobody reads them meanwhile: an owner publishes a layer's weights of clock t + 1 after all nodes have pushed the
/// layer's gradients of clock t, a node pushes after its last kernel of clock t that reads the layer's weights, and the
/// first of clock t + 1 waits for them (S6).
static __global__ void mirror_weights(NodeState node, std::uint64_t clocks) {
  const int owner = peer_of_block(node);
  const gpusock::Socket socket = node.push_sockets[owner];
  for (std::uint64_t clock = 0; clock < clocks; ++clock) {
    for (int layer = node.layout.layers - 1; layer >= 0; --layer) {
      const Range shard = node.layout.shard(layer, owner);
      const MessageHeader header{.kind = MessageKind::weights,
                                 .layer = static_cast<std::uint32_t>(layer),
                                 .floats = shard.size(),
                                 .clock = clock};
      float* weights = node.weights + node.layout.layer[layer].offset + shard.begin;
      if (!receive_header(node, socket, header, FailureKind::pull, owner)) return;
      // True already, unless the owner errs: then the weights are not touched while they are in use.
      const std::uint64_t all = node.layout.slice_blocks(layer, owner) * (clock + 1);
      const DeviceWord slice_blocks(node.counters[layer].slice_blocks[owner]);
      const auto pushed = [&] { return slice_blocks.load(cuda::memory_order_acquire) >= all; };  // S10, pairs with S1
      if (!wait_until(node, pushed)) return;
      if (!receive_floats(node, socket, weights, shard.size(), FailureKind::pull, owner)) return;
      __syncthreads();  // the whole block's writes come before its first thread's S5
      if (threadIdx.x == 0) {
        count(node.counters[layer].pulled_bytes, sizeof header + shard.size() * sizeof(float));
        publish(node.step_progress->pulled[owner], part_of(node, layer, clock) + 1);
        count_weights(node, layer);
      }
    }
  }
}

}  // namespace param_sync
