#pragma once
/// @file By which schedules a training exchanges its layers: worked out from its settings, the same on every node.

#include "config.hpp"
#include "executor/program.hpp"
#include "layout.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace param_sync {

/// Neighbouring layers that are exchanged as one tensor.
struct Bucket {
  int first_layer = 0;
  int end_layer = 0;
  std::uint32_t offset = 0;  ///< of its first parameter in the model
  std::uint32_t parameters = 0;
};

struct ExchangePlan {
  std::vector<Bucket> buckets;                ///< from the first layer to the last
  std::vector<schedule::Schedule> schedules;  ///< by bucket; each has channels of its own
  std::uint64_t ring_bytes = 0;               ///< of each connection: what it carries in a pass fits, up to 512 KiB
  std::uint64_t unit_bytes = 0;               ///< see executor::Settings
  std::uint64_t budget_bytes = 0;             ///< of what a node sends in a step; 0: none
  executor::Execution execution;              ///< of all of them

  int bucket_of(int layer) const;
  /// Bytes that a rank sends in a step on average, but for weights; headers included.
  std::uint64_t pushed_bytes(int rank) const;
  std::uint64_t dense_bytes(int rank) const;  ///< the same without a budget

  /// What the budget leaves (executor/program.hpp). Throws gpusock::Error (EINVAL) where it has no room for headers.
  double changes_per_float(int rank) const;

 private:
  executor::Sent sent(int rank, bool of_weights) const;
};

/// Throws gpusock::Error (EINVAL) where there is no such schedule, or a budget has no room for headers.
ExchangePlan make_exchange_plan(const Config& config, const Layout& layout);

/// True if a training by this scheme can keep to a budget.
bool has_budget(const std::string& scheme);

/// What --scheme takes: kDirectScheme, and schemes of schedules.
std::vector<std::string> training_schemes();

}  // namespace param_sync
