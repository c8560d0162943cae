#pragma once
/// @file What links cost, by a short measurement.

#include "gpusock/endpoint.hpp"
#include "tune/fit.hpp"

#include <vector>

namespace param_sync::commands {

struct MeasuredLinks {
  tune::Fit fit;
  std::vector<tune::PredictedTime> times;
  tune::FitError fitted;  ///< of the schemes that the fit is made of
  tune::FitError others;  ///< of schemes that it has not seen
  double scatter = 0;     ///< by how much equal runs differ: the middle half of their times, as a part of the median
  double load = 0;        ///< processes that ran on this machine in the minute before
};

/// Times all-reduces of some schemes and sizes between so many ranks of this process, each run once before, and fits
/// the cost model to the medians. Throws what LocalRanks throws.
MeasuredLinks measure_links(int nodes, gpusock::LinkKind link, int repeats);

}  // namespace param_sync::commands
