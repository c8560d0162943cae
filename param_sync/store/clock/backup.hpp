#pragma once
/// @file Backup workers (Chen et al., "Revisiting distributed synchronous SGD", 2016): a version does not wait for the
/// slowest workers.

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync {

/// A version ends with the first pushes of all ranks but `backups`, and those that come within the grace after them.
/// They are summed in the order of ranks, and the sum is scaled by how many ranks there are for each push of it. A push
/// that comes later is late: its owner drops it.
struct Backup {
  static constexpr bool kInRankOrder = true;  ///< see Bsp
  static constexpr bool kDropsLate = true;    ///< see Bsp
  std::uint64_t backups = 1;                  ///< for so many pushes a version does not wait; less than the ranks
  std::uint64_t grace_ns = 0;                 ///< but for so long

  /// See Bsp. Reads are as those of Bsp: `contained` counts versions, and `clock` too.
  GPUSOCK_FN bool suffices(std::uint64_t contained, [[maybe_unused]] bool own, std::uint64_t clock) const {
    return contained >= clock;
  }
  /// Which pushes of a version are summed now, if those of the ranks in `come` have come (a bit for each rank, from the
  /// lowest one on); 0: the version needs more.
  GPUSOCK_FN std::uint64_t summed(std::uint64_t come, int ranks) const {
    std::uint64_t count = 0;
    for (int rank = 0; rank < ranks; ++rank) count += come >> rank & 1;
    return count != 0 && count + backups >= static_cast<std::uint64_t>(ranks) ? come : 0;
  }
  /// What a sum of the ranks that have a bit in `summed` is multiplied by.
  GPUSOCK_FN float scale(std::uint64_t summed, int ranks) const {
    std::uint64_t count = 0;
    for (int rank = 0; rank < ranks; ++rank) count += summed >> rank & 1;
    return static_cast<float>(ranks) / static_cast<float>(count);
  }
};

}  // namespace param_sync
