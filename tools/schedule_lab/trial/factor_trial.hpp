#pragma once
/// @file Exchanges a layer's factors and makes its gradient from them, with all ranks in this process.

#include "param_sync/executor/factors.hpp"
#include "gpusock/endpoint.hpp"

#include <string>
#include <vector>

namespace param_sync::executor {

/// "sfb": factors go to all ranks, and each makes the gradient. "adam-fc": factors go to rank 0, which makes gradient
/// and weights and sends the weights to all. "hybrid": sfb, or the whole gradient if that is less to send.
const std::vector<std::string>& factor_trial_schemes();

struct FactorTrialSettings {
  std::string scheme = "sfb";
  FactorLayout layout;
  gpusock::LinkKind link = gpusock::LinkKind::automatic;
  int repeats = 5;             ///< timed runs, after one run that is not timed
  std::string dense = "ring";  ///< the all-reduce with which the exchange of factors is compared
};

/// Times are medians. Each is from before the first rank starts until the last one has ended.
struct FactorTrial {
  bool of_factors = true;  ///< false: hybrid has taken the whole gradient
  double exchange_s = 0;
  double rebuild_s = 0;  ///< time to make the gradient from factors, for adam-fc also the weights; 0 without factors
  double dense_s = 0;    ///< time of an all-reduce of the whole gradient
  /// Floats that the busiest rank sends according to its program: in the exchange, and in the all-reduce.
  std::uint64_t sent_floats = 0;
  std::uint64_t dense_floats = 0;
  double error = 0;  ///< relative error of the ranks' result (the gradient or the weights): the norm of the difference
                     ///< from a computation in doubles
  double error_allowed = 0;      ///< the largest `error` that rounding may cause
  double error_max = 0;          ///< the largest difference, as a share of the sum of its terms' sizes
  bool same_everywhere = false;  ///< true if all ranks have the same bits
};

/// Runs the trial. Throws schedule::Error (also if the scheme is unknown), and gpusock::Error as LocalRanks does.
FactorTrial try_factors(const FactorTrialSettings& settings);

}  // namespace param_sync::executor
