#pragma once
/// @file The kernels that hand gradients to resident lanes.

#include "param_sync/executor/handover.cuh"
#include "training/state.cuh"

namespace param_sync {

/// Where the gradients of a block's part of a layer go: by the number of the layer's parameter. One type for both, as
/// the compiler then has one loop around it, which it puts where it is called: twice of it is measurably slower.
struct LayerDestination {
  float* first;  ///< where those of the block follow each other: its first one
  std::uint64_t first_parameter;
  const executor::Destination& of_bucket;  ///< else
  std::uint64_t before;                    ///< floats of the bucket

  __device__ float& operator[](std::uint64_t parameter) const {
    return first != nullptr ? first[parameter - first_parameter] : of_bucket[before + parameter];
  }
};

/// Computes the block's part of a layer's gradient in a step, straight into rings where these have room. `places`: of
/// its bucket.
__device__ inline void compute_in_place(const NodeState& node, int layer, const executor::Places& places,
                                        std::uint64_t step, const float* input, const float* delta,
                                        std::uint32_t batch) {
  const LayerShape& shape = node.layout.layer[layer];
  const Range block = shape.block_range(blockIdx.x);
  const auto before = static_cast<std::uint64_t>(node.gradients + shape.offset - places.tensor);
  const executor::Destination destination(places, step, {before + block.begin, before + block.end});
  layer_backward_parameters(shape, blockIdx.x, input, delta, batch,
                            LayerDestination{destination.together(), block.begin, destination, before});
}

/// Computes the layer's gradient by its parameters, and with overlap hands it to the lanes that exchange its bucket.
/// `is_first`: no layer's gradients come before this one's.
static __global__ void backward_and_hand_over(NodeState node, int layer, executor::Places places, std::uint64_t step,
                                              const float* input, const float* delta, std::uint32_t batch,
                                              bool is_first, bool overlap) {
  if (!going_on(node)) return;
  compute_in_place(node, layer, places, step, input, delta, batch);
  __syncthreads();  // the whole block's writes come before its first thread's L9
  if (threadIdx.x != 0) return;
  executor::has_computed(*node.times, gpusock::clock_ns());
  if (!overlap) return;
  if (is_first && blockIdx.x == 0) executor::begin_communication(*node.times, gpusock::clock_ns());
  executor::hand_over(node.exchanges[node.exchange_of[layer]]);
}

/// Without overlap: hands all gradients over, when all are computed. `buckets`: a bit for each one. One thread.
static __global__ void hand_over_all(NodeState node, std::uint32_t buckets) {
  if (ended(node)) return;
  executor::begin_communication(*node.times, gpusock::clock_ns());
  for (int bucket = 0; buckets >> bucket != 0; ++bucket) {
    if ((buckets >> bucket & 1) != 0) executor::hand_over(node.exchanges[bucket]);
  }
}

}  // namespace param_sync
