#pragma once
/// @file The forward kernels of a node: each waits on the device for the weights that it needs.

#include "training/state.cuh"

namespace param_sync {

/// Computes one layer as soon as all its weights are those of step `clock`. Adds block 0's wait time to the step's.
template <class Kind>
static __global__ void forward_when_ready(NodeState node, NodeLayer<Kind> layer, std::uint64_t clock,
                                          const float* input, std::uint32_t batch, LayerOutput output,
                                          std::uint64_t* step_waited_ns) {
  std::uint64_t* waited_ns = blockIdx.x == 0 ? step_waited_ns : nullptr;
  if (!wait_for_version(node, layer.exchange, clock, waited_ns)) return;
  if (threadIdx.x == 0) executor::begin_compute(*node.times, gpusock::clock_ns());
  forward(layer.kind, node.weights + layer.offset, input, batch, output);
  __syncthreads();  // the whole block has computed
  if (threadIdx.x == 0) executor::end_compute(*node.times, gpusock::clock_ns());
}

/// Waits until an exchange has ended all steps before `clock`, and adds the wait time to the step's. One block:
/// in the next kernel many blocks would wait. A trace also shows this wait apart from that kernel.
[[maybe_unused]] static __global__ void wait_for_exchange(NodeState node, int exchange, std::uint64_t clock,
                                                          std::uint64_t* step_waited_ns) {
  wait_for_version(node, exchange, clock, step_waited_ns);
}

/// Waits until all layers' weights are those of step `clock`. One block.
static __global__ void wait_for_weights(NodeState node, std::uint64_t clock) { wait_for_versions(node, clock); }

}  // namespace param_sync
