#pragma once
/// @file Runs the exchange of a layer's factors and makes its gradient, with all ranks in this process.

#include "executor/factors.hpp"
#include "gpusock/endpoint.hpp"

#include <string>

namespace param_sync::executor {

struct FactorTrialSettings {
  FactorLayout layout;
  gpusock::LinkKind link = gpusock::LinkKind::automatic;
  int repeats = 5;             ///< after a first run, which is not timed
  std::string dense = "ring";  ///< what the factors are compared with
};

/// Medians, from before the first rank starts until the last one has its gradient.
struct FactorTrial {
  double exchange_s = 0;
  double rebuild_s = 0;
  double dense_s = 0;    ///< of an all-reduce of the whole gradient
  double error = 0;      ///< of the gradient made of factors: the norm of the difference to one of doubles, relative
  double error_max = 0;  ///< the largest difference, as a share of the sum of its terms' sizes
  bool same_everywhere = false;  ///< all ranks have the same bits
};

/// Throws schedule::Error, gpusock::Error as LocalRanks does.
FactorTrial try_factors(const FactorTrialSettings& settings);

}  // namespace param_sync::executor
