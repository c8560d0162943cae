#pragma once
/// @file The plan of a run. It follows from the run's settings and its data, and is the same on every node.

#include "param_sync/store/correction.hpp"
#include "param_sync/update/update.hpp"
#include "plan/pool_plan.hpp"
#include "plan/store_codec.hpp"
#include "plan/sync.hpp"
#include "settings/config.hpp"
#include "data/dataset.hpp"
#include "layout/layout.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace param_sync {

struct Plan {
  Layout layout;
  AnyUpdate update;  ///< of gradients
  SyncPlan sync;
  Sgd owners;                    ///< with --sync: what an owner does with a push
  Correction correction;         ///< likewise: with late ones
  StoreCodec codec;              ///< likewise: how they are sent
  std::optional<PoolPlan> pool;  ///< with --device-pool
  std::uint32_t batch = 0;
  std::uint64_t steps_per_epoch = 0;
  std::uint64_t steps = 0;
  std::uint64_t warmup_steps = 0;  ///< see rate_share()

  /// Throws gpusock::Error (EINVAL) if the settings and the data do not fit together.
  static Plan make(const Config& config, const DatasetShape& data);
  static Plan make(const Config& config, const Dataset& data) { return make(config, shape_of(data)); }

  /// The share of the learning rate that a step has: 1 after the warm-up, in which it rises linearly (Goyal et al.,
  /// "Accurate, large minibatch SGD", 2017). Kernels multiply the step's gradient by it, before any exchange.
  float rate_share(std::uint64_t step) const {
    return step < warmup_steps ? static_cast<float>(step + 1) / static_cast<float>(warmup_steps) : 1.0f;
  }
  /// The step of this plan before which as many samples were visited as before `step` by so many nodes.
  std::uint64_t step_after(std::uint64_t step, int nodes_before) const {
    return std::min(steps, step * static_cast<std::uint64_t>(nodes_before) / layout.nodes);
  }
  std::uint64_t samples_per_step() const { return std::uint64_t{batch} * layout.nodes; }
};

/// The layers of the model for samples of this shape. Some have no outputs if images are too small for the model.
std::vector<AnyLayer> layers_of(const Config& config, const SampleShape& sample);

/// The layout of that model. Throws gpusock::Error (EINVAL) if images are too small for it, and what make_layout()
/// does.
Layout layout_of(const Config& config, const SampleShape& sample, int nodes);

/// Says what is wrong with the settings for the data that they name; empty if nothing is, or if the data cannot be
/// read.
std::string problem_of_plan(const Config& config);

/// The most pushes and pulls that a node keeps for --history: a gigabyte.
inline constexpr std::uint64_t kHistoryEventsMax = std::uint64_t{1} << 21;

/// How many pushes and pulls a node keeps for --history.
std::uint64_t history_events(const Config& config, const Plan& plan);

/// The most connections that all nodes of the run have between them; 0 if the data cannot be read, or do not fit.
int connections_between_nodes(const Config& config);

/// The training samples that `rank` visits in the whole run, one batch after the other.
std::vector<std::uint32_t> training_order(const Config& config, const Dataset& data, int rank);

/// The test samples, first to last.
std::vector<std::uint32_t> test_order(const Dataset& data);

}  // namespace param_sync
