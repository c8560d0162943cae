#pragma once
/// @file Latency, overhead and bandwidths of links, from measured times of schedules.

#include "param_sync/cost/network_model.hpp"
#include "param_sync/cost/cost_model.hpp"

#include <string>
#include <vector>

namespace param_sync::tune {

/// A run of a schedule that was timed.
struct Measurement {
  std::string what;  ///< for people: scheme and size
  cost::Costs costs;
  double bytes = 0;
  double seconds = 0;
};

/// How far predictions are from measurements: |predicted / measured - 1|.
struct FitError {
  double mean = 0;
  double worst = 0;
  std::string worst_at;  ///< Measurement::what
};

struct Fit {
  cost::NetworkModel network;
  double start_s = 0;  ///< that each run takes besides, whatever its schedule

  double predicted_s(const cost::Costs& costs, double bytes) const {
    return start_s + cost::predicted_s(costs, bytes, network);
  }
};

/// The least sum of squares of relative errors of the cost model, where nothing is negative. A price that no
/// measurement shows is 0, and a bandwidth infinite. Throws schedule::Error where there are fewer than five
/// measurements, or one is not a positive time.
Fit fit(const std::vector<Measurement>& measurements);

/// What a fit predicts, beside what was measured.
struct PredictedTime {
  std::string what;     ///< Measurement::what
  bool fitted = false;  ///< the fit has seen it
  double predicted_s = 0;
  double measured_s = 0;
};

/// By how much the times of equal runs differ: the width of their middle half, as a part of the median. They are
/// sorted, and at least one.
double scatter_of(const std::vector<double>& seconds);

/// What a choice by the fit loses, by later measurements: of equal bytes it takes the schedule that it predicts the
/// fastest.
struct Regret {
  double bytes = 0;
  std::string taken;  ///< Measurement::what
  std::string best;   ///< the fastest by the measurements
  double share = 0;   ///< measured time of `taken` / that of `best` - 1
};

/// By bytes, the least first.
std::vector<Regret> regrets_of(const Fit& fit, const std::vector<Measurement>& measurements);

/// By how much medians of equal runs differ between two rounds of measurements, as a part of the first one's: the
/// median over all of them. Both have the same runs in the same order, at least one.
double drift_of(const std::vector<Measurement>& first, const std::vector<Measurement>& second);

FitError error_of(const Fit& fit, const std::vector<Measurement>& measurements);

}  // namespace param_sync::tune
