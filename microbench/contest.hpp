#pragma once
/// @file All rounds of a run: contestants in turn, so that what disturbs the machine disturbs all of them alike.

#include "options.hpp"
#include "statistics.hpp"

namespace bench {

/// One contestant's round.
struct RoundResult {
  Figures figures;
  std::uint64_t proxy_steps = 0;
  std::uint64_t proxy_wakeups = 0;
};

/// All rounds for messages of one size: rounds[i][c] is contestant c's i-th.
struct SizeResult {
  std::uint64_t bytes = 0;
  std::vector<std::vector<RoundResult>> rounds;

  /// The median over the rounds of one contestant's figure.
  double median_of(std::size_t contestant, double Figures::*figure) const;

  /// The median over the rounds of gpusock's figure divided by its first rival's of the same round.
  double median_ratio(double Figures::*figure) const;
};

struct ContestResult {
  std::vector<std::string> names;  ///< gpusock first
  std::vector<std::string> descriptions;
  std::string server;  ///< what the server runs on; empty: the answering halves are in this process
  std::vector<SizeResult> sizes;
};

/// Runs everything the options ask for. Throws gpusock::Error as Contestant::run.
ContestResult run_contest(const BenchOptions& options);

}  // namespace bench
