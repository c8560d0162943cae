#pragma once
/// @file The owner's side: gradients of all ranks come together, the optimizer runs, new weights go out.

#include "arithmetic/gradients.cuh"
#include "training/message.cuh"

namespace param_sync {

/// A part of a step's weights has come: the last one ends the step's communication. First thread of a block.
__device__ inline void time_weights(const NodeState& node) {
  const std::uint64_t parts = static_cast<std::uint64_t>(node.layout.layers) * node.layout.nodes;
  if ((DeviceWord(node.timing->weights).fetch_add(1, cuda::memory_order_acq_rel) + 1) % parts != 0) return;  // S13
  // relaxed: the first push was written before its slice went out, so before the weights came that some block has
  // counted in S13
  const std::uint64_t start_ns = DeviceWord(node.timing->first_push_ns).load(cuda::memory_order_relaxed);
  if (start_ns != 0) count(node.timing->communicating_ns, gpusock::clock_ns() - start_ns);
}

/// One part of a layer's weights is new: forward kernels may wait for it. First thread of a block.
__device__ inline void count_weights(const NodeState& node, int layer) {
  time_weights(node);  // first: after S5 the next step may push, and the time of this one's first push would be gone
  DeviceWord(node.counters[layer].weights).fetch_add(1, cuda::memory_order_release);  // S5, pairs with S6
}

/// A rank's gradients for this node's shard of `layer` are there. The block that brings the last ones sums them,
/// updates the weights and publishes the version. Block-collective; true in the block that did so.
__device__ inline bool arrive(const NodeState& node, int layer, std::uint64_t clock) {
  LayerCounters& counters = node.counters[layer];
  const std::uint64_t all = static_cast<std::uint64_t>(node.layout.nodes) * (clock + 1);
  __syncthreads();  // the whole block's writes come before its first thread's S2
  const bool last = __syncthreads_or(threadIdx.x == 0 &&
                                     DeviceWord(counters.arrived).fetch_add(1, cuda::memory_order_acq_rel) + 1 ==
                                         all) != 0;  // S2
  if (!last) return false;
  const Range shard = node.layout.shard(layer, node.rank);
  const std::size_t offset = node.layout.layer[layer].offset + shard.begin;
  const auto gradient_of = [&](int rank) {
    return rank == node.rank ? node.gradients + offset : node.staged(rank, layer) + shard.begin;
  };
  apply_gradients(node.optimizer, node.layout.nodes, shard.size(), gradient_of, node.velocity + offset,
                  node.weights + offset, threadIdx.x, blockDim.x);
  __syncthreads();
  if (threadIdx.x == 0) {
    count_weights(node, layer);
    DeviceWord(counters.version).store(clock + 1, cuda::memory_order_release);  // S3, pairs with S4
  }
  return true;
}

/// Resident, one block for each peer: takes its gradients for this node's shards and answers with the new weights.
static __global__ void serve_shards(NodeState node, std::uint64_t clocks) {
  const int peer = peer_of_block(node);
  const gpusock::Socket socket = node.serve_sockets[peer];
  for (std::uint64_t clock = 0; clock < clocks; ++clock) {
    for (int layer = node.layout.layers - 1; layer >= 0; --layer) {
      LayerCounters& counters = node.counters[layer];
      const Range shard = node.layout.shard(layer, node.rank);
      MessageHeader header{.kind = MessageKind::gradients,
                           .layer = static_cast<std::uint32_t>(layer),
                           .floats = shard.size(),
                           .clock = clock};
      float* staged = node.staged(peer, layer) + shard.begin;
      if (!receive_header(node, socket, header, FailureKind::gather, peer)) return;
      if (!receive_floats(node, socket, staged, shard.size(), FailureKind::gather, peer)) return;
      if (threadIdx.x == 0) publish(node.step_progress->gathered[peer], part_of(node, layer, clock) + 1);
      const auto published = [&] {
        return DeviceWord(counters.version).load(cuda::memory_order_acquire) > clock;  // S4, pairs with S3
      };
      if (!arrive(node, layer, clock) && !wait_until(node, published)) return;
      header.kind = MessageKind::weights;
      const float* weights = node.weights + node.layout.layer[layer].offset + shard.begin;
      if (!send_message(node, socket, header, weights, FailureKind::publish, peer)) return;
      if (threadIdx.x == 0) {
        count(counters.gathered_bytes, sizeof header + shard.size() * sizeof(float));
        count(counters.published_bytes, sizeof header + shard.size() * sizeof(float));
      }
    }
  }
}

}  // namespace param_sync
