#pragma once
/// @file Stale-synchronous parallel (Ho et al., "More effective distributed ML via a stale synchronous parallel
/// parameter server", NIPS 2013).

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync {

/// A reader that has made c pushes sees all pushes of all workers up to number c - staleness, and all of its own. It
/// may see more. Pushes are applied when they come.
struct Ssp {
  static constexpr bool kInRankOrder = false;  ///< see Bsp
  static constexpr bool kDropsLate = false;    ///< likewise
  std::uint64_t staleness = 0;                 ///< how many pushes of another worker a read may miss; at most 2^32

  /// See Bsp.
  GPUSOCK_FN bool suffices(std::uint64_t contained, bool own, std::uint64_t clock) const {
    return contained + (own ? 0 : staleness) >= clock;
  }
};

}  // namespace param_sync
