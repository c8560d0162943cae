#pragma once
/// @file The kernels of layers that are exchanged as factors: they hand a node's factors to the lanes, and make weights
/// from all nodes' factors.

#include "param_sync/executor/factors.hpp"
#include "training/state.cuh"

namespace param_sync {

/// A layer whose factors are exchanged; kernels take it by value. In `factors`, u is the outputs' errors, v the inputs.
struct FactorExchange {
  executor::FactorLayout factors;
  float* gathered = nullptr;   ///< all nodes' factors; device memory
  int gather = 0;              ///< index in NodeState::exchanges: the exchange that gathers them
  int spread = -1;             ///< index of the exchange that sends the owner's new weights to all others; -1: none
  bool makes_weights = false;  ///< true if this node makes the layer's weights

  GPUSOCK_FN float* errors_of(int rank) const {
    return gathered + factors.u_begin(static_cast<std::uint32_t>(rank), 0);
  }
  GPUSOCK_FN float* inputs_of(int rank) const {
    return gathered + factors.v_begin(static_cast<std::uint32_t>(rank), 0);
  }
  /// True if lanes bring this node weights that the owner makes: they may do so after the last read of the old weights.
  GPUSOCK_FN bool takes_weights() const { return spread >= 0 && !makes_weights; }
};

/// Copies this thread's share; all blocks of the grid take part.
__device__ inline void copy_share(const float* from, float* to, std::uint64_t count) {
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += threads) to[i] = from[i];
}

/// Gives the lanes the layer's factors instead of a gradient. Runs after the last kernel of the step that reads the
/// layer's weights. `is_first`: true if no layer's gradients or factors come before this one's.
static __global__ void hand_over_factors(NodeState node, FactorExchange at, std::uint64_t clock, const float* input,
                                         const float* delta, bool is_first, bool overlap) {
  // Until then the lanes may still read the factors of the step before.
  if (!wait_for_version(node, at.gather, clock)) return;
  const executor::FactorLayout& factors = at.factors;
  copy_share(delta, at.errors_of(node.rank), std::uint64_t{factors.samples} * factors.rows);
  copy_share(input, at.inputs_of(node.rank), std::uint64_t{factors.samples} * factors.columns);
  __syncthreads();  // the whole block's writes come before its first thread's L9
  if (threadIdx.x != 0) return;
  executor::has_computed(*node.times, gpusock::clock_ns());
  if (!overlap) return;
  if (is_first && blockIdx.x == 0) executor::begin_communication(*node.times, gpusock::clock_ns());
  executor::hand_over(node.exchanges[at.gather]);
  if (at.takes_weights()) executor::hand_over(node.exchanges[at.spread]);
}

/// Makes the layer's weights from all nodes' factors, after these have been gathered. It has as many blocks as the
/// kernel that computes a gradient.
template <class Kind, class Update>
static __global__ void apply_and_hand_over(NodeState node, NodeLayer<Kind> layer, Update update, FactorExchange at) {
  if (!going_on(node)) return;
  if (threadIdx.x == 0) executor::begin_compute(*node.times, gpusock::clock_ns());
  apply_factors(
      layer.kind, blockIdx.x, node.nodes, [&](int rank) { return at.errors_of(rank); },
      [&](int rank) { return at.inputs_of(rank); }, at.factors.samples, update, node.states.from(layer.offset),
      node.weights + layer.offset);
  __syncthreads();  // the whole block's writes come before its first thread's L9
  if (threadIdx.x != 0) return;
  executor::end_compute(*node.times, gpusock::clock_ns());
  if (at.spread >= 0) executor::hand_over(node.exchanges[at.spread]);
}

}  // namespace param_sync
