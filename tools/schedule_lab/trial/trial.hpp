#pragma once
/// @file Runs a schedule on data whose result is known, with all ranks in this process.

#include "param_sync/schedule/schedule.hpp"
#include "gpusock/endpoint.hpp"

#include <cstdint>
#include <vector>

namespace param_sync::executor {

struct TrialSettings {
  std::uint64_t floats = 1 << 18;  ///< of each rank's tensor
  gpusock::LinkKind link = gpusock::LinkKind::automatic;
  int repeats = 5;  ///< after a first run, which is not timed
};

struct Trial {
  std::vector<double> seconds;  ///< from before the first rank starts until the last one has ended; ascending
  double error_max = 0;         ///< the largest difference to a sum of doubles, as a share of the terms' sizes
  bool in_rank_order = false;   ///< all sums have the bits of a sum in rank order

  double median_s() const { return seconds[seconds.size() / 2]; }
};

/// Checks the schedule, runs it and compares what the workers have. Sums differ from doubles by rounding only. Throws
/// schedule::Error, or gpusock::Error (EIO) where a result is wrong, or what LocalRanks throws.
Trial try_out(const schedule::Schedule& schedule, const TrialSettings& settings);

}  // namespace param_sync::executor
