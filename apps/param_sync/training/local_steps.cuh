#pragma once
/// @file The kernels of a node that trains by itself for some steps, before all nodes average their weights.

#include "arithmetic/averages.cuh"
#include "arithmetic/shares.cuh"
#include "training/store_exchange.cuh"

#include <cstdint>

namespace param_sync {

/// The parameters of a layer: [begin, begin + count) of the model.
struct LayerParameters {
  std::int32_t layer = 0;
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
};

/// Calls `call` with this thread's share of a layer's parameters, counted in the model.
template <class Call>
__device__ inline void for_parameters(const LayerParameters& of, Call call) {
  for_share(of.count, [&](std::uint32_t i) { call(of.begin + i); });
}

/// Keeps the average that the node sets out from.
[[maybe_unused]] static __global__ void keep_average(const float* weights, float* average, LayerParameters of) {
  for_parameters(of, [&](std::uint32_t i) { average[i] = weights[i]; });
}

/// Applies the node's own gradients.
template <class Update>
static __global__ void apply_own(NodeState node, Update update, LayerParameters of) {
  if (!going_on(node)) return;
  for_parameters(of, [&](std::uint32_t i) { update.apply(node.gradients[i], node.states.of(i), node.weights[i]); });
  if (threadIdx.x == 0) executor::has_computed(*node.times, gpusock::clock_ns());  // an exchange may go on beside it
}

/// Hands over how far the node has come from the average.
[[maybe_unused]] static __global__ void hand_over_change(NodeState node, const float* average, LayerParameters of,
                                                         bool is_first) {
  if (!going_on(node)) return;
  for_parameters(of,
                 [&](std::uint32_t i) { node.gradients[i] = part_of_change(node.weights[i], average[i], node.nodes); });
  hand_over_layer(node, of.layer, is_first);
}

/// Waits for a version of the layer, which is in `average`, and goes on with it. With `is_late` the node has made steps
/// since it has pushed its change.
[[maybe_unused]] static __global__ void take_average(NodeState node, const float* average, LayerParameters of,
                                                     std::uint64_t version, bool is_late,
                                                     std::uint64_t* step_waited_ns) {
  if (!wait_for_version(node, of.layer, version, blockIdx.x == 0 ? step_waited_ns : nullptr)) return;
  for_parameters(
      of, [&](std::uint32_t i) { node.weights[i] = is_late ? taken_late(average[i], node.weights[i]) : average[i]; });
}

}  // namespace param_sync
