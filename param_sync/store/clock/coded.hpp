#pragma once
/// @file Gradient coding by fractional repetition (Tandon et al., "Gradient coding: avoiding stragglers in distributed
/// learning", ICML 2017): any `stragglers` slow workers cost a version nothing, and no gradient is missing from it.

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync {

/// Ranks are groups of stragglers + 1, in their order: the ranks of a group push the same gradients. A version ends
/// when a push of each group has come. One push of each group is summed, in the order of groups: so its bits are the
/// same whichever ranks were late. A push that comes later is late: its owner drops it.
struct Coded {
  static constexpr bool kInRankOrder = true;  ///< see Bsp
  static constexpr bool kDropsLate = true;    ///< see Bsp
  std::uint64_t stragglers = 1;               ///< the ranks are divisible by this number and one

  /// See Backup.
  GPUSOCK_FN bool suffices(std::uint64_t contained, [[maybe_unused]] bool own, std::uint64_t clock) const {
    return contained >= clock;
  }
  /// See Backup.
  GPUSOCK_FN std::uint64_t summed(std::uint64_t come, int ranks) const {
    const int of_group = static_cast<int>(stragglers) + 1;
    std::uint64_t first_ones = 0;
    for (int begin = 0; begin < ranks; begin += of_group) {
      int rank = begin;
      while (rank < begin + of_group && (come >> rank & 1) == 0) ++rank;
      if (rank == begin + of_group) return 0;
      first_ones |= std::uint64_t{1} << rank;
    }
    return first_ones;
  }
  /// See Backup.
  GPUSOCK_FN float scale([[maybe_unused]] std::uint64_t summed, [[maybe_unused]] int ranks) const { return 1; }
};

}  // namespace param_sync
