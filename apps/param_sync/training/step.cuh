#pragma once
/// @file The forward kernels of a node: each waits on the device for the weights it needs.

#include "arithmetic/kernels.cuh"
#include "training/state.cuh"

namespace param_sync {

/// True if all of the layer's weights are those of `clock`. One thread.
__device__ inline bool weights_are_of(const NodeState& node, int layer, std::uint64_t clock) {
  return executor::has_version(node.exchanges[node.exchange_of[layer]], clock);
}

/// One layer, as soon as all its weights are those of `clock`. The time that block 0 waited is added to the step's.
[[maybe_unused]] static __global__ void forward_when_ready(NodeState node, int layer, std::uint64_t clock,
                                                           const float* input, std::uint32_t batch, float* output,
                                                           std::uint64_t* step_waited_ns) {
  std::uint64_t* waited_ns = blockIdx.x == 0 ? step_waited_ns : nullptr;
  const auto ready = [&] { return weights_are_of(node, layer, clock); };
  if (!wait_until(node, ready, waited_ns)) return;
  if (threadIdx.x == 0) executor::begin_compute(*node.times, gpusock::clock_ns());
  const LayerShape& shape = node.layout.layer[layer];
  layer_forward(shape, node.weights + shape.offset, input, batch, layer + 1 < node.layout.layers, output);
  __syncthreads();  // the whole block has computed
  if (threadIdx.x == 0) executor::end_compute(*node.times, gpusock::clock_ns());
}

/// Ends when all layers' weights are those of `clock`. One block.
static __global__ void wait_for_weights(NodeState node, std::uint64_t clock) {
  for (int layer = 0; layer < node.layout.layers; ++layer) {
    if (!wait_until(node, [&] { return weights_are_of(node, layer, clock); })) return;
  }
}

}  // namespace param_sync
