#pragma once
/// @file The kernels that hand gradients to resident lanes.

#include "param_sync/executor/handover.cuh"
#include "param_sync/executor/in_place_reservation.cuh"
#include "training/state.cuh"

namespace param_sync {

/// Where the gradients of a block's part of a layer go; the index is the number of the layer's parameter. One type
/// serves both cases, so that the compiler makes one loop and inlines it: two loops are measurably slower.
struct LayerDestination {
  float* first;  ///< where the block's first one goes, if all follow each other; else null
  std::uint64_t first_parameter;
  const executor::Destination& of_bucket;  ///< where each one goes, if `first` is null
  std::uint64_t before;                    ///< floats of the bucket before the layer's

  __device__ float& operator[](std::uint64_t parameter) const {
    return first != nullptr ? first[parameter - first_parameter] : of_bucket[before + parameter];
  }
};

/// Computes the block's part of a layer's gradient in a step, straight into the rings if these have room.
/// `reservations` are those of the layer's bucket.
template <class Kind>
__device__ inline void compute_in_place(const NodeState& node, const NodeLayer<Kind>& layer,
                                        const executor::InPlaceReservations& reservations, std::uint64_t step,
                                        const float* input, const float* delta, std::uint32_t batch) {
  const Range block = layer.kind.block_range(blockIdx.x);
  const auto before = static_cast<std::uint64_t>(node.gradients + layer.offset - reservations.tensor);
  const executor::Destination destination(reservations, step, {before + block.begin, before + block.end});
  backward_parameters(layer.kind, node.weights + layer.offset, blockIdx.x, input, delta, batch,
                      LayerDestination{destination.together(), block.begin, destination, before});
}

/// Computes the gradient with respect to the layer's parameters. With overlap, hands it to the lanes that exchange its
/// bucket. `is_first`: true if no layer's gradients come before this one's.
template <class Kind>
static __global__ void backward_and_hand_over(NodeState node, NodeLayer<Kind> layer,
                                              executor::InPlaceReservations reservations, std::uint64_t step,
                                              const float* input, const float* delta, std::uint32_t batch,
                                              bool is_first, bool overlap) {
  if (!going_on(node)) return;
  compute_in_place(node, layer, reservations, step, input, delta, batch);
  __syncthreads();  // the whole block's writes come before its first thread's L9
  if (threadIdx.x != 0) return;
  executor::has_computed(*node.times, gpusock::clock_ns());
  if (!overlap) return;
  if (is_first && blockIdx.x == 0) executor::begin_communication(*node.times, gpusock::clock_ns());
  executor::hand_over(node.exchanges[layer.exchange]);
}

/// Hands over what kernels before this one have written. One thread.
[[maybe_unused]] static __global__ void hand_over_one(NodeState node, int exchange) {
  if (!ended(node)) executor::hand_over(node.exchanges[exchange]);
}

/// Without overlap: hands over all gradients and factors after all are computed. `exchanges` has `count` entries. One
/// thread.
static __global__ void hand_over_all(NodeState node, const std::int32_t* exchanges, int count) {
  if (ended(node)) return;
  executor::begin_communication(*node.times, gpusock::clock_ns());
  for (int i = 0; i < count; ++i) executor::hand_over(node.exchanges[exchanges[i]]);
}

}  // namespace param_sync
