#pragma once
/// @file Bulk-synchronous parallel (Valiant, "A bridging model for parallel computation", 1990): all workers read the
/// same weights, after exactly their own number of pushes of each worker.

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync {

/// Pushes of one clock are applied together, once all workers have made theirs, in the order of ranks.
struct Bsp {
  static constexpr bool kInRankOrder = true;  ///< pushes of one clock are summed in the order of ranks, and then
                                              ///< applied
  static constexpr bool kDropsLate = false;   ///< a sum may lack pushes, which are dropped when they come

  /// True if a read may miss all pushes of a worker beyond the first `contained` ones. `own`: of the reader itself.
  /// `clock`: how many pushes the reader has made.
  GPUSOCK_FN bool suffices(std::uint64_t contained, [[maybe_unused]] bool own, std::uint64_t clock) const {
    return contained >= clock;
  }
};

}  // namespace param_sync
