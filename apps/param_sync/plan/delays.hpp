#pragma once
/// @file How long a step takes a node in virtual time (--serial --delays).

#include <cstdint>
#include <string_view>

namespace param_sync {

struct Delays {
  bool exponential = false;  ///< half of a step is a random time with an exponential distribution
  double slowest = 1;        ///< the last rank's steps take so many times as long
  double stalled_share = 0;  ///< so many of all steps of all ranks are stalled, at random
  double stalled = 1;        ///< a stalled step takes so many times as long

  /// Returns how long a step takes a rank. The mean is 1, if the rank is not slow and nothing stalls. Equal arguments
  /// give equal times.
  double time_of(std::uint64_t seed, int rank, int nodes, std::uint64_t step) const;
};

/// Returns what --delays says: nothing, "exponential", "slow:F" (F from 1 to 1000), "stalls:SHARE:F" (SHARE from 0
/// to 1), or several with commas between them.
/// Throws gpusock::Error (EINVAL).
Delays delays_of(std::string_view text);

}  // namespace param_sync
