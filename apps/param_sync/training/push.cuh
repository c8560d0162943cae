#pragma once
/// @file The worker's side of a gradient: the kernel that computes it sends it, slice by slice, as it gets done.

#include "training/shard.cuh"

namespace param_sync {

/// The owner's slice of the layer's gradient is complete: it goes out, or stays where it is if it is this node's own.
/// Block-collective.
__device__ inline void push_slice(const NodeState& node, int layer, std::uint64_t clock, int owner) {
  if (owner == node.rank) {
    arrive(node, layer, clock);
    return;
  }
  const Range slice = node.layout.shard(layer, owner);
  const MessageHeader header{.kind = MessageKind::gradients,
                             .layer = static_cast<std::uint32_t>(layer),
                             .floats = slice.size(),
                             .clock = clock};
  if (threadIdx.x == 0) {
    const std::uint64_t pushes_per_clock = static_cast<std::uint64_t>(node.layout.layers) * (node.layout.nodes - 1);
    // relaxed, both: the steps' kernels come one after the other; a thread reads the time only after this slice's
    // weights (S13)
    if (DeviceWord(node.timing->pushes).fetch_add(1, cuda::memory_order_relaxed) % pushes_per_clock == 0) {
      DeviceWord(node.timing->first_push_ns).store(gpusock::clock_ns(), cuda::memory_order_relaxed);
    }
    count(node.counters[layer].pushed_bytes, sizeof header + slice.size() * sizeof(float));
    publish(node.step_progress->pushing[owner], 2 * part_of(node, layer, clock) + 1);
  }
  const float* gradient = node.gradients + node.layout.layer[layer].offset + slice.begin;
  if (!send_message(node, node.push_sockets[owner], header, gradient, FailureKind::push, owner)) return;
  if (threadIdx.x == 0) publish(node.step_progress->pushing[owner], 2 * part_of(node, layer, clock) + 2);
}

/// Computes the layer's gradient by its parameters. Each block counts the owners whose slices it wrote to; who
/// completes a slice pushes it there and then, while other blocks still compute.
static __global__ void backward_and_push(NodeState node, int layer, std::uint64_t clock, const float* input,
                                         const float* delta, std::uint32_t batch) {
  const LayerShape& shape = node.layout.layer[layer];
  if (!going_on(node)) return;
  // Each rank begins after its own shard, so that not all push to the same owner at the same time; its own comes last.
  const unsigned begin = node.layout.block_of(layer, node.layout.shard(layer, node.rank).end - 1) + 1;
  const unsigned block = (blockIdx.x + begin) % gridDim.x;
  layer_backward_parameters(shape, block, input, delta, batch, node.gradients + shape.offset);
  const Range written = shape.block_range(block);
  const int last_owner = node.layout.owner_of(layer, written.end - 1);
  for (int owner = node.layout.owner_of(layer, written.begin); owner <= last_owner; ++owner) {
    const std::uint64_t all = node.layout.slice_blocks(layer, owner) * (clock + 1);
    __syncthreads();  // the whole block's writes come before its first thread's S1
    const bool complete =
        __syncthreads_or(
            threadIdx.x == 0 &&
            DeviceWord(node.counters[layer].slice_blocks[owner]).fetch_add(1, cuda::memory_order_acq_rel) + 1 == all) !=
        0;  // S1
    if (complete) push_slice(node, layer, clock, owner);
  }
}

}  // namespace param_sync
