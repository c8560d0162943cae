#pragma once
/// @file Finds what links cost by a short measurement.

#include "gpusock/endpoint.hpp"
#include "tune/fit.hpp"
#include "tune/rounds.hpp"

#include <chrono>
#include <vector>

namespace param_sync::commands {

struct MeasuredLinks {
  tune::Fit fit;
  std::vector<tune::PredictedTime> times;
  tune::FitError fitted;  ///< error for the schemes that the fit uses
  tune::FitError others;  ///< error for schemes that the fit has not seen
  double scatter = 0;     ///< by how much equal runs differ: Round::scatter of the measurements
};

/// The links by the last round but one, and how well they predict the last round.
struct CheckedLinks {
  MeasuredLinks links;
  std::vector<tune::Regret> regrets;  ///< what choices by the fit lose, according to the last round
  tune::Settled settled;
  double load = 0;  ///< mean number of processes that ran on this machine in the minute before
};

/// Times all-reduces of some schemes and sizes between so many ranks of this process, after one run of each that is not
/// timed, and fits the cost model to the medians. Throws what LocalRanks throws.
MeasuredLinks measure_links(int nodes, gpusock::LinkKind link, int repeats);

/// Measures in rounds until the last two are steady (tune/rounds.hpp). After `patience` no further round begins, except
/// for the second one. Throws what measure_links() throws.
CheckedLinks measure_links_again(int nodes, gpusock::LinkKind link, int repeats, std::chrono::seconds patience);

}  // namespace param_sync::commands
