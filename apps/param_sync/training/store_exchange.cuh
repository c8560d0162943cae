#pragma once
/// @file The kernels that exchange gradients and weights through a store (StoreNode): they meet the kernels that
/// compute by the words of param_sync/executor/exchange_words.cuh, as lanes of schedules do.

#include "param_sync/executor/handover.cuh"
#include "param_sync/fail_at.cuh"
#include "param_sync/pull_by_tree.cuh"
#include "param_sync/push_chosen.cuh"
#include "param_sync/store.cuh"
#include "settings/config.hpp"
#include "training/pool_words.cuh"
#include "training/state.cuh"

#include <cerrno>
#include <cstdint>

namespace param_sync {

/// A range of the store: a part of a layer.
struct StorePart {
  std::uint32_t range = 0;
  std::int32_t layer = 0;
  std::uint64_t begin = 0;            ///< index of its first parameter in the model
  std::uint64_t floats = 0;           ///< how many parameters it has
  std::uint32_t chosen = 0;           ///< not 0: how many of them a push has
  std::uint64_t exchanges = 0;        ///< how many there are of the layer
  std::uint64_t gradients = 0;        ///< where its gradients are; as `begin`, or in a pool
  std::uint64_t* pool_use = nullptr;  ///< not null: its gradients are in a pool, and pushes are counted here
};

/// How far the weights of an owner's ranges have lagged behind this rank's clock.
struct OwnersLags {
  std::uint64_t sum = 0;  ///< of all pulls and other ranks
  std::uint64_t most = 0;
};

/// What the blocks take that push and pull; by value. Pointers point to device memory.
struct StoreMoves {
  static constexpr std::uint64_t kLagsMax = 64;  ///< lags are counted up to this one, which also counts longer ones
  StoreHandle store;
  const StorePart* parts = nullptr;       ///< by owner, then by layer
  const std::uint32_t* first = nullptr;   ///< by owner: its first part; and how many parts there are
  const std::uint64_t* blocks = nullptr;  ///< by layer: how many blocks compute its gradients
  OwnersLags* of_owners = nullptr;        ///< by owner
  std::uint64_t* lags = nullptr;          ///< see NodeReport::staleness
  double bytes_per_ns = 0;                ///< not 0: what pushed floats and their numbers may have, of all owners
  Choosing choosing;                      ///< with StorePart::chosen or bytes_per_ns
  Withheld withheld;                      ///< likewise, of all parameters
  std::uint64_t* seen = nullptr;          ///< by owner, then by rank: what the last pull contained
  std::uint64_t exchanges = 0;            ///< of the layer that has most
  bool by_layer = false;                  ///< layers are exchanged one after the other, else all at once
  std::uint64_t versions = 1;             ///< see NodeMemory
  std::uint64_t parameters = 0;           ///< floats from a version to the next one
  std::uint64_t pull_every = 1;           ///< see SyncPlan
  bool by_tree = false;                   ///< nodes pass weights on, but for the last ones
  FailHandle failing;                     ///< --fail-at
  std::uint64_t timeout_ns = 0;  ///< of a push and of a pull; and how long a slower rank may push nothing at the end
};

/// Hands over the block's part of what a layer's blocks push. `is_first`: true if no layer's comes before this one's in
/// a step. Block-collective.
__device__ inline void hand_over_layer(const NodeState& node, int layer, bool is_first) {
  __syncthreads();  // the whole block's writes come before its first thread's L9
  if (threadIdx.x != 0) return;
  executor::has_computed(*node.times, gpusock::clock_ns());
  if (is_first && blockIdx.x == 0) executor::begin_communication(*node.times, gpusock::clock_ns());
  executor::hand_over(node.exchanges[layer]);
}

/// Computes a layer's gradients, and hands them to the blocks that push.
template <class Kind>
static __global__ void backward_to_store(NodeState node, NodeLayer<Kind> layer, const float* input, const float* delta,
                                         std::uint32_t batch, bool is_first) {
  if (!going_on(node)) return;
  backward_parameters(layer.kind, node.weights + layer.offset, blockIdx.x, input, delta, batch,
                      node.gradients + layer.offset);
  hand_over_layer(node, layer.exchange, is_first);
}

/// What a block has that pushes and pulls.
class StoreBlock {
 protected:
  __device__ StoreBlock(const NodeState& node, const StoreMoves& moves) : node_(node), moves_(moves) {}

  __device__ void fail_here(std::uint64_t step, FailPhase phase) const {
    fail_at(block_, moves_.failing, step, static_cast<std::uint32_t>(phase));
  }

  /// Block-collective.
  __device__ bool succeeded(int error) const {
    if (error != 0 && threadIdx.x == 0) fail(node_, FailureKind::store, -1, -error);
    return error == 0;
  }

  __device__ gpusock::Deadline deadline() const { return gpusock::Deadline::after_ns(moves_.timeout_ns); }

  const NodeState& node_;
  const StoreMoves& moves_;
  cooperative_groups::thread_block block_ = gpusock::this_block();
};

/// Pushes and pulls the ranges of one owner. One block.
class OwnersMoves : StoreBlock {
 public:
  __device__ OwnersMoves(const NodeState& node, const StoreMoves& moves, unsigned owner)
      : StoreBlock(node, moves),
        first_(moves.first[owner]),
        end_(moves.first[owner + 1]),
        lags_(moves.of_owners[owner]),
        seen_(moves.seen + static_cast<std::size_t>(owner) * static_cast<std::size_t>(node.nodes)) {}

  /// Until all exchanges are done, or the run ends. Layers come in the order in which all nodes hand them over: so no
  /// node waits for a push that another node's block comes to later.
  __device__ void run() {
    for (std::uint64_t step = 0; step < moves_.exchanges; ++step) {
      for (std::uint32_t end = end_, begin = end_; end > first_; end = begin) {
        begin = begin_of_group(end);
        if (step >= moves_.parts[begin].exchanges) continue;
        if (!push_all(begin, end, step) || !pull_all(begin, end, step)) return;
      }
    }
  }

 private:
  /// The first one of the parts before `end` that are exchanged at once.
  __device__ std::uint32_t begin_of_group(std::uint32_t end) const {
    std::uint32_t begin = end - 1;
    while (begin > first_ && (!moves_.by_layer || moves_.parts[begin - 1].layer == moves_.parts[begin].layer)) --begin;
    return begin;
  }

  /// The last layer's gradients come first.
  __device__ bool push_all(std::uint32_t begin, std::uint32_t end, std::uint64_t step) {
    fail_here(step, FailPhase::compute);
    for (std::uint32_t i = end; i-- > begin;) {
      const StorePart& part = moves_.parts[i];
      executor::ExchangeWords& words = node_.exchanges[part.layer];
      const std::uint64_t blocks = moves_.blocks[part.layer] * (step + 1);
      if (!wait_until(node_, [&] { return executor::has_gradients(words, blocks); })) return false;
      const float* const gradients = of_version(node_.gradients, step) + part.gradients;
      if (!succeeded(push_part(i, gradients))) return false;
      if (part.pool_use != nullptr) end_push(*part.pool_use);
      fail_here(step, FailPhase::push);
    }
    fail_here(step, FailPhase::pull);
    return true;
  }

  /// The gradients' memory is free. Block-collective.
  __device__ void end_push(std::uint64_t& pool_use) const {
    __syncthreads();
    if (threadIdx.x == 0) note_end(pool_use);
  }

  /// What the last push leaves out is lost: gradients of many steps, applied at once, would do harm.
  __device__ int push_part(std::uint32_t index, const float* gradients) const {
    const StorePart& part = moves_.parts[index];
    if (part.chosen == 0 && moves_.bytes_per_ns == 0) {
      return push(block_, moves_.store, part.range, gradients, deadline());
    }
    const Withheld& all = moves_.withheld;
    Choosing choosing = moves_.choosing;
    choosing.rows_max = part.chosen != 0 ? part.chosen : allowed(index);
    return push_chosen(block_, moves_.store, part.range, gradients, {all.sum + part.begin, all.rows + part.begin},
                       choosing, deadline());
  }

  /// How many floats of a part may be pushed now, so that all pushes keep to their bytes a second. Of what is left, the
  /// parts that come next in this step have their share, and this one has at least a float. The block's threads agree.
  __device__ std::uint32_t allowed(std::uint32_t index) const {
    GPUSOCK_SHARED(floats, std::uint32_t);
    if (threadIdx.x == 0) {
      std::uint64_t spent = 0, of_owner = 0, to_come = 0;
      for (std::uint32_t i = first_; i < end_; ++i) {
        const StorePart& part = moves_.parts[i];
        const std::uint64_t requests = clock_of(moves_.store, part.range) * sizeof(store::Request);
        spent += traffic_of(moves_.store, part.range).pushed_bytes - requests;
        of_owner += part.floats;
        if (i <= index) to_come += part.floats;
      }
      constexpr double kOfFloat = 2 * sizeof(float);  // with its number
      const double share = static_cast<double>(of_owner) / static_cast<double>(moves_.parameters);
      const double all = moves_.bytes_per_ns * share * static_cast<double>(gpusock::clock_ns() - begin_ns_);
      const double left = (all - static_cast<double>(spent)) / kOfFloat;
      const auto of_part = static_cast<double>(moves_.parts[index].floats);
      floats = 0;
      if (left >= 1 && of_part != 0) {
        const double of_left = left * of_part / static_cast<double>(to_come);
        floats = static_cast<std::uint32_t>(min(max(of_left, 1.0), of_part));
      }
    }
    __syncthreads();
    const std::uint32_t found = floats;
    __syncthreads();
    return found;
  }

  /// The next step needs the first layer's weights first. After the last step, the last layer's pushes are complete
  /// first.
  __device__ bool pull_all(std::uint32_t begin, std::uint32_t end, std::uint64_t step) {
    const bool is_last = step + 1 == moves_.parts[begin].exchanges;
    for (std::uint32_t i = begin; i < end; ++i) {
      const bool goes_on = is_last ? pull_final(moves_.parts[begin + end - 1 - i])
                                   : pull_part(moves_.parts[i], step + 1);
      if (!goes_on) return false;
      fail_here(step, FailPhase::take);
    }
    return true;
  }

  __device__ bool pull_part(const StorePart& part, std::uint64_t clock) {
    const bool pulls = clock % moves_.pull_every == 0;
    if (pulls && !(moves_.by_tree ? pull_passed_on(part, clock) : pull_once(part, clock))) return false;
    if (pulls && threadIdx.x == 0) count_lags(clock);
    return publish(part, clock);
  }

  __device__ bool pull_once(const StorePart& part, std::uint64_t clock) {
    float* const weights = of_version(node_.weights, clock) + part.begin;
    return succeeded(pull(block_, moves_.store, part.range, weights, seen_, deadline()));
  }

  __device__ bool pull_passed_on(const StorePart& part, std::uint64_t clock) {
    const float* const before = of_version(node_.weights, clock - 1) + part.begin;
    float* const weights = of_version(node_.weights, clock) + part.begin;
    return succeeded(pull_by_tree(block_, moves_.store, part.range, before, weights, seen_, deadline()));
  }

  /// The weights that the training ends with contain all pushes of all ranks. Ranks that are slower may take any time,
  /// as long as they push.
  __device__ bool pull_final(const StorePart& part) {
    constexpr std::uint64_t kPauseMaxNs = 160'000'000;  // a history has room for 64 such pulls of a range
    std::uint64_t pause_ns = 5'000'000;
    GPUSOCK_SHARED(all, std::uint64_t);
    std::uint64_t before = 0, since_ns = gpusock::clock_ns();
    for (;;) {
      if (!pull_once(part, part.exchanges)) return false;
      if (threadIdx.x == 0) {
        all = 0;
        for (int rank = 0; rank < node_.nodes; ++rank) all += seen_[rank];
      }
      __syncthreads();
      if (all == part.exchanges * static_cast<std::uint64_t>(node_.nodes)) break;
      const std::uint64_t now_ns = gpusock::clock_ns();
      if (all != before) since_ns = now_ns;
      before = all;
      const bool late = threadIdx.x == 0 && now_ns - since_ns > moves_.timeout_ns;
      if (late) fail(node_, {FailureKind::behind, slowest(), ETIMEDOUT});
      const std::uint64_t until_ns = now_ns + pause_ns;
      pause_ns = min(2 * pause_ns, kPauseMaxNs);
      if (!wait_until(node_, [&] { return gpusock::clock_ns() >= until_ns; }) || !going_on(node_)) return false;
    }
    return publish(part, part.exchanges);
  }

  /// Returns the rank that has made the fewest pushes, as far as the last pull says. One thread.
  __device__ std::int32_t slowest() const {
    std::int32_t least = 0;
    for (std::int32_t rank = 1; rank < node_.nodes; ++rank) {
      if (seen_[rank] < seen_[least]) least = rank;
    }
    return least;
  }

  /// The part of `all` that belongs to a version of the weights.
  __device__ float* of_version(float* all, std::uint64_t version) const {
    return all + version % moves_.versions * moves_.parameters;
  }

  /// Counts by how many pushes the weights that were pulled lag behind this rank's own clock when it computes with
  /// them. One thread.
  __device__ void count_lags(std::uint64_t clock) {
    clock += moves_.versions - 1;
    for (int rank = 0; rank < node_.nodes; ++rank) {
      if (rank == node_.rank) continue;
      const std::uint64_t lag = seen_[rank] < clock ? clock - seen_[rank] : 0;
      add(moves_.lags[min(lag, StoreMoves::kLagsMax)], 1);
      lags_.sum += lag;
      lags_.most = max(lags_.most, lag);
    }
  }

  /// relaxed: it is read when all kernels have ended. One thread.
  __device__ static void add(std::uint64_t& word, std::uint64_t what) {
    executor::DeviceWord(word).fetch_add(what, cuda::memory_order_relaxed);
  }

  /// Counts that the part has the weights of `clock`. Parts of a version are counted together, so a block that is ahead
  /// of another one waits until the version before is complete: blocks may be apart if a step does not need the newest
  /// weights.
  __device__ bool publish(const StorePart& part, std::uint64_t clock) {
    executor::ExchangeWords& words = node_.exchanges[part.layer];
    if (!wait_until(node_, [&] { return executor::has_version(words, clock - 1); })) return false;
    if (threadIdx.x == 0) {
      executor::end_step(words, static_cast<std::uint64_t>(node_.nodes), clock - 1, *node_.times, node_.exchange_count);
    }
    return true;
  }

  std::uint32_t first_, end_;
  OwnersLags& lags_;  ///< this thread alone writes it
  std::uint64_t* seen_;
  std::uint64_t begin_ns_ = gpusock::clock_ns();
};

/// Resident: a block for each owner. Ends when all steps are done, or the run ends.
[[maybe_unused]] static __global__ void exchange_through_store(NodeState node, StoreMoves moves) {
  OwnersMoves(node, moves, blockIdx.x).run();
}

}  // namespace param_sync
