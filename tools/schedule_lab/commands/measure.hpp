#pragma once
/// @file What links cost, by a short measurement.

#include "gpusock/endpoint.hpp"
#include "tune/fit.hpp"
#include "tune/rounds.hpp"

#include <chrono>
#include <vector>

namespace param_sync::commands {

struct MeasuredLinks {
  tune::Fit fit;
  std::vector<tune::PredictedTime> times;
  tune::FitError fitted;  ///< of the schemes that the fit is made of
  tune::FitError others;  ///< of schemes that it has not seen
  double scatter = 0;     ///< by how much equal runs differ: the middle half of their times, as a part of the median
};

/// The last round but one, and what the last one says of it.
struct CheckedLinks {
  MeasuredLinks links;
  std::vector<tune::Regret> regrets;  ///< of choices by the fit, by the last round
  tune::Settled settled;
  double load = 0;  ///< processes that ran on this machine in the minute before
};

/// Times all-reduces of some schemes and sizes between so many ranks of this process, each run once before, and fits
/// the cost model to the medians. Throws what LocalRanks throws.
MeasuredLinks measure_links(int nodes, gpusock::LinkKind link, int repeats);

/// The same in rounds, until the last two are steady (tune/rounds.hpp), but no new one begins after `patience`. Throws
/// what measure_links() throws.
CheckedLinks measure_links_again(int nodes, gpusock::LinkKind link, int repeats, std::chrono::seconds patience);

}  // namespace param_sync::commands
