#pragma once
/// @file The kernels that hand gradients to resident lanes, and one in which nodes meet.

#include "executor/handover.cuh"
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

/// Ends when all nodes have accepted all others: until then a node would take the connections of an executor for those
/// of nodes. One block of one thread.
static __global__ void meet_nodes(NodeState node) {
  const auto thread = gpusock::this_thread();
  const auto deadline = gpusock::Deadline::after_ns(node.timeout_ns);
  char all_here = 1;
  for (int peer = 0; peer < node.layout.nodes; ++peer) {
    if (peer == node.rank) continue;
    const auto sent = node.net.send(thread, node.accepted_sockets[peer], &all_here, sizeof all_here, 0, deadline);
    if (sent != 1) return fail(node, FailureKind::accept, peer, sent < 0 ? -sent : ECONNRESET);
  }
  for (int peer = 0; peer < node.layout.nodes; ++peer) {
    if (peer == node.rank) continue;
    const auto got = node.net.recv(thread, node.connected_sockets[peer], &all_here, sizeof all_here, 0, deadline);
    if (got != 1) return fail(node, FailureKind::accept, peer, got < 0 ? -got : ECONNRESET);
  }
}

}  // namespace param_sync
