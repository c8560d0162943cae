#pragma once
/// @file The kernel that exchanges gradients and weights through a store whose clock drops late pushes: `backup:B` and
/// `coded:K`. A node that is late goes on with the step that the others are at, and leaves out those that it has
/// missed.

#include "param_sync/pull_together.cuh"
#include "training/store_exchange.cuh"

#include <cstdint>

namespace param_sync {

/// How far a node has come; in mapped memory. The host reads it after a kernel that has waited for the exchange.
struct Reached {
  std::uint64_t clock = 0;  ///< the step to compute next
  std::uint64_t at_ns = 0;  ///< the device's time at which its weights were there
};

/// What the block takes besides StoreMoves; by value. Pointers point to device memory.
struct LateMoves {
  const std::uint64_t* begins = nullptr;  ///< by range of the store: index of its first parameter in the model
  std::uint64_t* after = nullptr;         ///< a number of each rank: see pull_together()
  std::uint32_t ranges = 0;
  std::uint64_t steps = 0;     ///< of the run
  Reached* reached = nullptr;  ///< mapped memory
};

/// Pushes and pulls the ranges of all owners. One block, since all ranges have to come to the same version.
class LateExchange : StoreBlock {
 public:
  __device__ LateExchange(const NodeState& node, const StoreMoves& moves, const LateMoves& late)
      : StoreBlock(node, moves), late_(late), parts_(moves.first[node.nodes]) {}

  /// Until all steps are done, or the run ends. Kernels that compute count the steps that this node has computed
  /// (`computed`), and the store counts the steps of the run.
  __device__ void run() {
    for (std::uint64_t computed = 0;; ++computed) {
      if (!push_all(computed) || !pull_all()) return;
      const std::uint64_t clock = clock_of(moves_.store, 0);
      if (threadIdx.x == 0) *late_.reached = {clock, gpusock::clock_ns()};
      __syncthreads();
      if (!publish(computed) || clock >= late_.steps) return;
    }
  }

 private:
  /// The last layer's gradients come first.
  __device__ bool push_all(std::uint64_t computed) {
    const std::uint64_t step = clock_of(moves_.store, 0);
    fail_here(step, FailPhase::compute);
    for (std::int32_t layer = node_.exchange_count; layer-- > 0;) {
      executor::ExchangeWords& words = node_.exchanges[layer];
      const std::uint64_t blocks = moves_.blocks[layer] * (computed + 1);
      if (!wait_until(node_, [&] { return executor::has_gradients(words, blocks); })) return false;
      for (std::uint32_t i = 0; i < parts_; ++i) {
        const StorePart& part = moves_.parts[i];
        if (part.layer != layer) continue;
        if (!succeeded(push(block_, moves_.store, part.range, node_.gradients + part.begin, deadline()))) return false;
        fail_here(step, FailPhase::push);
      }
    }
    fail_here(step, FailPhase::pull);
    return true;
  }

  __device__ bool pull_all() {
    const auto to = [this](unsigned range) { return node_.weights + late_.begins[range]; };
    return succeeded(pull_together(block_, moves_.store, late_.ranges, to, late_.after, deadline()));
  }

  /// Counts that all parts have newer weights: kernels of the next step may read them.
  __device__ bool publish(std::uint64_t computed) {
    for (std::uint32_t i = 0; i < parts_; ++i) {
      executor::ExchangeWords& words = node_.exchanges[moves_.parts[i].layer];
      if (threadIdx.x == 0) {
        executor::end_step(words, static_cast<std::uint64_t>(node_.nodes), computed, *node_.times,
                           node_.exchange_count);
      }
      fail_here(clock_of(moves_.store, 0) - 1, FailPhase::take);
    }
    return going_on(node_);
  }

  const LateMoves& late_;
  const std::uint32_t parts_;
};

/// Resident: one block. Ends when all steps are done, or the run ends.
[[maybe_unused]] static __global__ void exchange_dropping_late(NodeState node, StoreMoves moves, LateMoves late) {
  LateExchange(node, moves, late).run();
}

}  // namespace param_sync
