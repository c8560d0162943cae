#pragma once
/// @file All rounds of a run. The contestants take turns, so that a disturbance of the machine affects all alike.

#include "options.hpp"
#include "statistics.hpp"

namespace bench {

/// The result of one contestant's round.
struct RoundResult {
  Figures figures;
  std::uint64_t proxy_steps = 0;
  std::uint64_t proxy_wakeups = 0;
};

/// All rounds for messages of one size, a number of sockets and calls by one group: rounds[i][c] is the i-th round of
/// contestant c.
struct SizeResult {
  std::uint64_t bytes = 0;
  unsigned sockets = 1;                ///< BenchOptions::sockets
  unsigned in_use = 1;                 ///< scale: Job::turns
  GroupKind group = GroupKind::block;  ///< who makes gpusock's calls
  std::vector<std::vector<RoundResult>> rounds;
  std::vector<Histogram> histograms;  ///< of each contestant's samples of all rounds

  /// The median of one contestant's figure over all rounds.
  double median_of(std::size_t contestant, double Figures::*figure) const;

  /// The median over all rounds of this ratio: gpusock's figure divided by its first rival's figure in the same round.
  double median_ratio(double Figures::*figure) const;
};

struct ContestResult {
  std::vector<std::string> names;  ///< gpusock first
  std::vector<std::string> descriptions;
  std::vector<std::string> others;  ///< gpusock's descriptions with the groups after the first one
  std::string server;               ///< the server's device; empty: the answering halves are in this process
  std::vector<SizeResult> sizes;
};

/// Runs everything that the options ask for. Throws as Contestant::run().
ContestResult run_contest(const BenchOptions& options);

}  // namespace bench
