#pragma once
/// @file Runs the exchange of a layer's factors and makes its gradient, with all ranks in this process.

#include "param_sync/executor/factors.hpp"
#include "gpusock/endpoint.hpp"

#include <string>
#include <vector>

namespace param_sync::executor {

/// "sfb": factors go to all ranks, and each makes the gradient. "adam-fc": factors go to rank 0, which makes the
/// gradient and the weights, and sends these to all. "hybrid": sfb, or the whole gradient where that is less to send.
const std::vector<std::string>& factor_trial_schemes();

struct FactorTrialSettings {
  std::string scheme = "sfb";
  FactorLayout layout;
  gpusock::LinkKind link = gpusock::LinkKind::automatic;
  int repeats = 5;             ///< after a first run, which is not timed
  std::string dense = "ring";  ///< what the factors are compared with; an all-reduce
};

/// Times are medians, from before the first rank starts until the last one has ended.
struct FactorTrial {
  bool of_factors = true;  ///< else hybrid has taken the whole gradient
  double exchange_s = 0;
  double rebuild_s = 0;  ///< of the gradient, where it is made of factors; adam-fc: and of the weights
  double dense_s = 0;    ///< of an all-reduce of the whole gradient
  /// Floats that the rank sends which sends most, as its program says: of the exchange, and of the all-reduce.
  std::uint64_t sent_floats = 0;
  std::uint64_t dense_floats = 0;
  double error = 0;  ///< of what all ranks have at the end, the gradient or the weights: the norm of the difference
                     ///< to one of doubles, relative
  double error_allowed = 0;      ///< what rounding may make of `error`
  double error_max = 0;          ///< the largest difference, as a share of the sum of its terms' sizes
  bool same_everywhere = false;  ///< all ranks have the same bits
};

/// Throws schedule::Error (also where there is no such scheme), gpusock::Error as LocalRanks does.
FactorTrial try_factors(const FactorTrialSettings& settings);

}  // namespace param_sync::executor
