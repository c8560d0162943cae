#pragma once
/// @file Layers that are exchanged as factors: the kernels that hand a node's factors to the lanes, and make weights of
/// all nodes' factors.

#include "param_sync/executor/factors.hpp"
#include "training/state.cuh"

namespace param_sync {

/// A layer whose factors are exchanged; by value. Its factors' u are the errors of the outputs, their v the inputs.
struct FactorExchange {
  executor::FactorLayout factors;
  float* gathered = nullptr;   ///< all nodes' factors; device memory
  int gather = 0;              ///< of NodeState::exchanges: the one that gathers them
  int spread = -1;             ///< the one that spreads the weights which the layer's owner has made; -1: none does
  bool makes_weights = false;  ///< this node does

  GPUSOCK_FN float* errors_of(int rank) const {
    return gathered + factors.u_begin(static_cast<std::uint32_t>(rank), 0);
  }
  GPUSOCK_FN float* inputs_of(int rank) const {
    return gathered + factors.v_begin(static_cast<std::uint32_t>(rank), 0);
  }
  /// True if this node's lanes may take weights as soon as it has read those of the step before for the last time.
  GPUSOCK_FN bool takes_weights() const { return spread >= 0 && !makes_weights; }
};

/// This thread's share of a copy; all blocks of the grid take part.
__device__ inline void copy_share(const float* from, float* to, std::uint64_t count) {
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += threads) to[i] = from[i];
}

/// Instead of a gradient, gives the lanes the layer's factors. After the last kernel of the step that reads its
/// weights. `is_first`: no layer's gradients or factors come before this one's.
static __global__ void hand_over_factors(NodeState node, FactorExchange at, std::uint64_t clock, const float* input,
                                         const float* delta, bool is_first, bool overlap) {
  // The lanes no longer read the factors of the step before.
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

/// Makes the layer's weights of all nodes' factors, when these have been gathered. So many blocks as the backward
/// kernel has.
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
