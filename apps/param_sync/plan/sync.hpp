#pragma once
/// @file How nodes of a store stay together (--sync): what they push, what they wait for, and which weights they
/// compute with.

#include "param_sync/store/clock/clock.hpp"
#include "param_sync/store/tree.hpp"
#include "plan/slots.hpp"
#include "settings/config.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <variant>

namespace param_sync {

/// A layer of a rank's model.
struct RankLayer {
  int rank = 0;
  int layer = 0;
};

struct SyncPlan {
  static constexpr std::uint64_t kDepthMax = 16;

  AnyClock clock = Bsp();
  /// Not 0: each node trains by itself for so many steps. Then it pushes its change, which is the exchange. With slots
  /// it does so once in so many steps.
  std::uint64_t local_steps = 0;
  /// Exchanges from a pull of weights to the next one.
  std::uint64_t pull_every = 1;
  /// A step computes with the weights of so many steps before, and does not wait for newer ones.
  std::uint64_t depth = 0;
  Slots slots;  ///< after which steps a node pushes its change
  /// Not 0: nodes pass weights on by trees of so many levels, and compute with weights as old as their place is deep.
  std::uint64_t tree_depth = 0;
  store::Tree tree;  ///< these trees, in a run
  /// Layers are exchanged at different steps, as fragments of Streaming DiLoCo are.
  bool by_layer = false;
  /// With `by_layer`: steps that a node makes between a push of a layer and taking what came of it. Less than
  /// `local_steps`.
  std::uint64_t overlap = 0;
  int layers = 1;           ///< of the model
  std::uint64_t steps = 0;  ///< of the run

  /// True if equal runs end with equal weights.
  bool is_deterministic() const { return std::holds_alternative<Bsp>(clock); }
  /// True if a step may end without some nodes, whose gradients are then dropped.
  bool drops_late() const { return param_sync::drops_late(clock); }
  /// How many parts of a step's samples a node computes: with gradient coding those of its whole group.
  std::uint64_t batches_of_node() const {
    const Coded* const coded = std::get_if<Coded>(&clock);
    return coded == nullptr ? 1 : coded->stragglers + 1;
  }
  /// The settings of a run in which each group of nodes with the same samples is one node. Its steps have the same
  /// size.
  Config of_groups(Config config) const {
    config.nodes /= static_cast<int>(batches_of_node());
    config.batch *= static_cast<std::uint32_t>(batches_of_node());
    return config;
  }
  /// True if all nodes average their weights.
  bool averages() const { return local_steps != 0 && is_deterministic(); }
  /// How many exchanges of a rank's layer come before a step, or in all if it is `steps`. The last step is followed by
  /// one. All ranks have as many in all: in the last round of slots, which may be shorter, the exchange of each rank
  /// comes after the last step.
  std::uint64_t exchanges_before(std::uint64_t step, const RankLayer& of) const;
  /// Of how many exchanges of a rank's layer a node has what came of them, when a step begins.
  std::uint64_t arrived_before(std::uint64_t step, const RankLayer& of) const {
    return exchanges_before(step < overlap ? 0 : step - overlap, of);
  }
  /// The version of the weights that a step computes with. With trees those of an owner are as old as lag_of() says.
  std::uint64_t version_of(std::uint64_t step, const RankLayer& of) const {
    const std::uint64_t newest = arrived_before(step, of);
    return newest < depth ? 0 : newest - depth;
  }
  /// By how many exchanges the weights lag that a rank computes with, of the parameters of an owner.
  std::uint64_t lag_of(int owner, int rank) const {
    return tree_depth == 0 ? depth : static_cast<std::uint64_t>(tree.lag_of(owner, rank));
  }
  std::uint64_t lag_max() const { return std::max(depth, tree_depth); }
  /// How many versions of the weights, and of the gradients, a node has at a time.
  std::uint64_t versions() const { return depth + 1; }
  /// True if a rank's layer is exchanged after the step.
  bool exchanges_after(std::uint64_t step, const RankLayer& of) const {
    return exchanges_before(step, of) != exchanges_before(step + 1, of);
  }
  /// True if weights are pulled after so many exchanges.
  bool pulls_after(std::uint64_t exchange) const { return exchange % pull_every == 0 || exchange == exchanges(); }
  /// True if a node that trains by itself sets out anew when the step begins: what came of its last change of the layer
  /// is there.
  bool begins_alone(std::uint64_t step, const RankLayer& of) const {
    return local_steps != 0 && (step == 0 || arrived_before(step, of) != arrived_before(step - 1, of));
  }
  /// How many exchanges there are in the run, of the layer that has most.
  std::uint64_t exchanges() const { return exchanges_before(steps, {.layer = layers - 1}); }

  /// Returns this plan for a run. Throws gpusock::Error (EINVAL) if it has more slots than there are nodes.
  SyncPlan of_run(int nodes, int layers_of_model, std::uint64_t seed, std::uint64_t steps_of_run) const;

 private:
  /// By how many steps a layer is exchanged earlier than the first one.
  std::uint64_t offset_of(int layer) const;
};

/// Returns what --sync says: a clock of stores, "every:X", "streaming:X,T", "downpour:PUSH,PULL", "slots:M",
/// "pipeline:D" or "tree:D". Throws gpusock::Error (EINVAL).
SyncPlan sync_of(std::string_view text);

}  // namespace param_sync
