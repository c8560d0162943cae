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
};

inline constexpr double kDriftMax = 0.15;  ///< of a quiet machine
inline constexpr int kRoundsMax = 4;

/// The last round but one, and what the last one says of it.
struct CheckedLinks {
  MeasuredLinks links;
  std::vector<tune::Regret> regrets;  ///< of choices by the fit, by the last round
  double drift = 0;                   ///< of medians between the two
  int rounds = 0;
  double load = 0;  ///< processes that ran on this machine in the minute before
};

/// Times all-reduces of some schemes and sizes between so many ranks of this process, each run once before, and fits
/// the cost model to the medians. Throws what LocalRanks throws.
MeasuredLinks measure_links(int nodes, gpusock::LinkKind link, int repeats);

/// The same in rounds, until the medians of one differ by kDriftMax or less from those of the round before it, but
/// kRoundsMax at most. Throws what measure_links() throws.
CheckedLinks measure_links_again(int nodes, gpusock::LinkKind link, int repeats);

}  // namespace param_sync::commands
