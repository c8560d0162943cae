#pragma once
/// @file The schedules by which a training exchanges its layers, made from its settings: the same on every node.

#include "settings/config.hpp"
#include "param_sync/codec/top_k.hpp"
#include "param_sync/executor/program.hpp"
#include "layout/layout.hpp"
#include "plan/layer_exchange.hpp"
#include "plan/layer_schemes.hpp"
#include "param_sync/schedule/schedule.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace param_sync {

/// A layer, or neighbouring layers that are exchanged as one tensor. With adam-fc a layer has two buckets in a row.
struct Bucket {
  int first_layer = 0;
  int end_layer = 0;
  std::uint32_t offset = 0;  ///< index of its first parameter in the model
  std::uint32_t parameters = 0;
  Carries carries = Carries::gradients;
  std::uint64_t floats = 0;  ///< floats that are exchanged
};

struct ExchangePlan {
  std::vector<LayerScheme> schemes;  ///< by layer
  /// First those of numbers that nodes share within a step, in the order of a step's kernels: so they go first. Then
  /// those of parameters, from the first layer to the last.
  std::vector<Bucket> buckets;
  std::vector<int> sharing;                   ///< the layers that share numbers, from the first to the last
  std::vector<schedule::Schedule> schedules;  ///< by bucket; each has channels of its own
  std::uint64_t ring_bytes = 0;               ///< of each connection: holds what it carries in a pass, up to 512 KiB
  std::uint64_t unit_bytes = 0;               ///< see executor::Settings
  std::uint64_t budget_bytes = 0;             ///< limit of what a node sends in a step; 0: none
  executor::Execution execution;              ///< of all schedules

  /// The bucket that brings the layer's weights, or what they are made from.
  int bucket_of(int layer) const;
  bool has_factors(int layer) const { return is_of_factors(schemes[static_cast<std::size_t>(layer)].scheme); }
  /// The bucket that gathers the layer's factors.
  int factors_of(int layer) const;
  /// The bucket of the numbers that nodes share before the layer's outputs, or before the errors of its inputs.
  int shared_forward_of(int layer) const { return place_in_sharing(layer); }
  int shared_backward_of(int layer) const { return 2 * static_cast<int>(sharing.size()) - 1 - place_in_sharing(layer); }
  executor::Cut cut_of(std::size_t bucket) const;
  /// Bytes that a rank sends in a step on average, with headers but without weights.
  std::uint64_t pushed_bytes(int rank) const;
  std::uint64_t dense_bytes(int rank) const;  ///< the same without a budget

  /// How many changes a rank may send for each float within the budget (codec/top_k.hpp). Throws gpusock::Error
  /// (EINVAL) if the budget has no room for headers.
  double changes_per_float(int rank) const;

 private:
  bool has_two_exchanges(int layer) const;
  int place_in_sharing(int layer) const;
  executor::Sent sent(int rank, bool of_weights) const;
};

/// Throws gpusock::Error (EINVAL) if a schedule cannot be made, or the budget has no room for headers.
ExchangePlan make_exchange_plan(const Config& config, const Layout& layout);

/// The most connections that all nodes of a training have between them: those of the plan's lanes, and one for last
/// words for each pair of nodes.
int connections_between(const ExchangePlan& plan, int nodes);

/// True if a training with this scheme can keep to a budget.
bool has_budget(const std::string& scheme);
/// Which changes a budget sends first.
codec::ChangeOrder order_of(const Config& config);

}  // namespace param_sync
