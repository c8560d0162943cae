#pragma once
/// @file The kernels of a step whose weights and gradients are in a pool (--device-pool), and the block that copies
/// weights into it.

#include "training/pool_words.cuh"
#include "training/store_exchange.cuh"

#include <cstdint>

namespace param_sync {

/// A stay, as a kernel of a step uses it; by value. Pointers point to device memory, but for `staging`.
struct PoolUse {
  float* floats = nullptr;  ///< the layer's weights, or its gradients
  std::uint64_t* opened = nullptr;
  std::uint64_t number = 0;        ///< of the stay, from 1, counted through all steps
  std::uint64_t* ended = nullptr;  ///< null if another one than this kernel is the last one that uses the stay
  StepStaging* staging = nullptr;  ///< mapped: the step's
};

/// The block waits until the stay has begun. Returns false if the run ends first. Block-collective.
__device__ inline bool begin_use(const NodeState& node, const PoolUse& use) {
  std::uint64_t* const stalled_ns = blockIdx.x == 0 ? &use.staging->stalled_ns : nullptr;
  const auto opened = [&] { return has_opened(*use.opened, use.number); };
  if (!wait_until(node, opened, stalled_ns)) return false;
  if (threadIdx.x == 0) executor::begin_compute(*node.times, gpusock::clock_ns());
  return true;
}

/// The block has computed. Block-collective.
__device__ inline void end_use(const NodeState& node, const PoolUse& use) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  executor::end_compute(*node.times, gpusock::clock_ns());
  if (use.ended != nullptr) note_end(*use.ended);
}

/// As forward_when_ready(), with weights in the pool. A wait for a version is not one for the stager.
template <class Kind>
static __global__ void forward_in_pool(NodeState node, NodeLayer<Kind> layer, PoolUse weights, std::uint64_t clock,
                                       const float* input, std::uint32_t batch, LayerOutput output,
                                       std::uint64_t* step_waited_ns) {
  if (!wait_for_version(node, layer.exchange, clock, blockIdx.x == 0 ? step_waited_ns : nullptr)) return;
  if (!begin_use(node, weights)) return;
  forward(layer.kind, weights.floats, input, batch, output);
  end_use(node, weights);
}

/// Computes the errors of a layer's inputs, with weights in the pool.
template <class Kind>
static __global__ void backward_input_in_pool(NodeState node, NodeLayer<Kind> layer, Sums below, PoolUse weights,
                                              const float* delta, const float* input, std::uint32_t batch,
                                              float* input_delta) {
  if (!begin_use(node, weights)) return;
  backward_input(layer.kind, weights.floats, delta, input, batch, below, input_delta);
  end_use(node, weights);
}

/// As backward_to_store(), with gradients in the pool.
template <class Kind>
static __global__ void backward_in_pool(NodeState node, NodeLayer<Kind> layer, PoolUse gradients, const float* input,
                                        const float* delta, std::uint32_t batch, bool is_first) {
  if (!begin_use(node, gradients)) return;
  const float* const weights = nullptr;  // they are not in the pool now: kinds that read them here are refused
  backward_parameters(layer.kind, weights, blockIdx.x, input, delta, batch, gradients.floats);
  end_use(node, gradients);
  hand_over_layer(node, layer.exchange, is_first);
}

/// A stay, as the stager begins it.
struct StagedStay {
  std::int32_t layer = 0;
  std::uint64_t weights = 0;                       ///< index of the layer's first parameter in the model
  std::uint64_t begin = 0;                         ///< where in the pool the stay is, in floats
  std::uint64_t floats = 0;                        ///< to copy: 0 if the stay is of gradients
  std::uint64_t uses = 0;                          ///< by how many blocks it is used in a step, which each do O3
  std::uint32_t first_before = 0, end_before = 0;  ///< the stays that must have ended: see Staging::before
};

/// A stay that must have ended.
struct StayBefore {
  std::uint32_t stay = 0;
  std::uint32_t in_step_before = 0;
};

/// What the stager takes; by value. Pointers point to device memory, unless their comments say otherwise.
struct Staging {
  float* pool = nullptr;
  const float* weights = nullptr;      ///< mapped: the model's
  const StagedStay* stays = nullptr;   ///< in the order in which they begin in each step
  const StayBefore* before = nullptr;  ///< of all stays
  std::uint64_t* opened = nullptr;
  std::uint64_t* ended = nullptr;  ///< by stay
  StepStaging* by_step = nullptr;  ///< mapped
  std::uint32_t stay_count = 0;
  std::uint64_t steps = 0;
};

/// Begins all stays of all steps, one after the other, as soon as there is room for each. One block.
class Stager {
 public:
  __device__ Stager(const NodeState& node, const Staging& staging) : node_(node), staging_(staging) {}

  __device__ void run() {
    for (std::uint64_t step = 0; step < staging_.steps; ++step) {
      for (std::uint32_t stay = 0; stay < staging_.stay_count; ++stay) {
        if (!begin(step, stay)) return;
      }
    }
  }

 private:
  __device__ bool begin(std::uint64_t step, std::uint32_t number) {
    const StagedStay& stay = staging_.stays[number];
    if (!wait_until(node_, [&] { return has_room(step, stay); })) return false;
    if (stay.floats != 0 && !copy_weights(step, stay)) return false;
    if (threadIdx.x == 0) open_stay(*staging_.opened, step * staging_.stay_count + number + 1);
    return true;
  }

  /// One thread.
  __device__ bool has_room(std::uint64_t step, const StagedStay& stay) const {
    for (std::uint32_t i = stay.first_before; i < stay.end_before; ++i) {
      const StayBefore& before = staging_.before[i];
      const std::uint64_t times = step + 1 - before.in_step_before;
      if (!has_ends(staging_.ended[before.stay], staging_.stays[before.stay].uses * times)) return false;
    }
    return true;
  }

  __device__ bool copy_weights(std::uint64_t step, const StagedStay& stay) {
    if (!wait_for_version(node_, stay.layer, step)) return false;
    const std::uint64_t begin_ns = gpusock::clock_ns(), bytes = stay.floats * sizeof(float);
    gpusock::copy(gpusock::this_block(), staging_.pool + stay.begin, staging_.weights + stay.weights, bytes);
    __syncthreads();
    if (threadIdx.x != 0) return true;
    StepStaging& counted = staging_.by_step[step];
    counted.bytes += bytes;
    counted.copying_ns += gpusock::clock_ns() - begin_ns;
    return true;
  }

  const NodeState& node_;
  const Staging& staging_;
};

/// Resident: a block for each owner, and then one that stages weights. Ends when all steps are done, or the run ends.
[[maybe_unused]] static __global__ void exchange_and_stage(NodeState node, StoreMoves moves, Staging staging) {
  if (blockIdx.x < static_cast<unsigned>(node.nodes)) {
    OwnersMoves(node, moves, blockIdx.x).run();
  } else {
    Stager(node, staging).run();
  }
}

}  // namespace param_sync
