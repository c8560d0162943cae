#pragma once
/// @file Finds latency, overhead and bandwidths of links from measured times of schedules.

#include "param_sync/cost/network_model.hpp"
#include "param_sync/cost/cost_model.hpp"

#include <string>
#include <vector>

namespace param_sync::tune {

/// A timed run of a schedule.
struct Measurement {
  std::string what;  ///< scheme and size, as text for people
  cost::Costs costs;
  double bytes = 0;
  double seconds = 0;
};

/// The error of predictions: |predicted / measured - 1|.
struct FitError {
  double mean = 0;
  double worst = 0;
  std::string worst_at;  ///< Measurement::what
};

struct Fit {
  cost::NetworkModel network;
  double start_s = 0;  ///< time that each run takes in addition, whatever its schedule

  double predicted_s(const cost::Costs& costs, double bytes) const {
    return start_s + cost::predicted_s(costs, bytes, network);
  }
};

/// Fits the prices of the cost model: those with the least sum of squared relative errors, none of them negative. If
/// the measurements show nothing of a price, it is 0, or infinite if it is a bandwidth. Throws schedule::Error if there
/// are fewer than five measurements, or if a time is not positive.
Fit fit(const std::vector<Measurement>& measurements);

/// A time that a fit predicts, and the measured one.
struct PredictedTime {
  std::string what;     ///< Measurement::what
  bool fitted = false;  ///< true if the fit has seen it
  double predicted_s = 0;
  double measured_s = 0;
};

/// Returns by how much the times of equal runs differ: the width of their middle half, as a share of the median. There
/// is at least one time, and they are sorted.
double scatter_of(const std::vector<double>& seconds);

/// The loss of a choice by the fit, according to later measurements. Of the schedules for equal bytes, the fit chooses
/// the one for which it predicts the shortest time.
struct Regret {
  double bytes = 0;
  std::string taken;  ///< Measurement::what
  std::string best;   ///< Measurement::what of the fastest measured one
  double share = 0;   ///< measured time of `taken` / that of `best` - 1
};

/// Returns the regrets by bytes, the least bytes first.
std::vector<Regret> regrets_of(const Fit& fit, const std::vector<Measurement>& measurements);

/// Returns by how much medians of equal runs differ between two rounds of measurements, as a share of the first
/// round's: the median over all runs. Both rounds have the same runs in the same order, at least one.
double drift_of(const std::vector<Measurement>& first, const std::vector<Measurement>& second);

FitError error_of(const Fit& fit, const std::vector<Measurement>& measurements);

}  // namespace param_sync::tune
