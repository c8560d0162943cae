#pragma once
/// @file Runs a schedule on data whose result is known, with all ranks in this process.

#include "param_sync/schedule/schedule.hpp"
#include "gpusock/endpoint.hpp"

#include <cstdint>
#include <vector>

namespace param_sync::executor {

struct TrialSettings {
  std::uint64_t floats = 1 << 18;  ///< floats of each rank's tensor
  gpusock::LinkKind link = gpusock::LinkKind::automatic;
  int repeats = 5;           ///< timed runs, after one run that is not timed
  bool fills_rings = false;  ///< before the timed ones come so many runs that bytes have gone once through all of a
                             ///< ring's memory, up to 64: the first ones cost page faults
};

struct Trial {
  std::vector<double> seconds;  ///< times from before the first rank starts until the last one has ended; ascending
  double error_max = 0;         ///< largest difference from a sum of doubles, as a share of the sum of its terms' sizes
  bool in_rank_order = false;   ///< true if all sums have the bits of a sum in rank order

  double median_s() const { return seconds[seconds.size() / 2]; }
};

/// Checks and runs the schedule, and compares the results with sums of doubles: they may differ by rounding only.
/// Throws schedule::Error, gpusock::Error (EIO) if a result is wrong, and what LocalRanks throws.
Trial try_out(const schedule::Schedule& schedule, const TrialSettings& settings);

}  // namespace param_sync::executor
