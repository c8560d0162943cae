#pragma once
/// @file The clocks of a range at its owner: which pushes have come, which ones the weights contain, and which reads
/// may be answered. Servers and the simulation of the tests use the same code.

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync::store {

/// The clocks of a range. `Clock`: see param_sync/store/clock.
template <class Clock>
struct RangeClocks {
  Clock clock;
  std::uint64_t* received = nullptr;   ///< by rank: how many of its pushes have come as a whole
  std::uint64_t* contained = nullptr;  ///< by rank: how many of its pushes the weights contain
  int ranks = 1;

  /// True if the next push of a rank may be taken. Otherwise its last one is not applied yet, and still has its memory.
  GPUSOCK_FN bool may_push(int rank) const { return !Clock::kInRankOrder || received[rank] == contained[rank]; }

  /// Notes that a push of a rank has come as a whole. Returns true if all ranks' pushes of one clock are to be applied
  /// together now, and then noted by apply_all().
  GPUSOCK_FN bool end_push(int rank) const {
    ++received[rank];
    if constexpr (Clock::kInRankOrder) {
      for (int other = 0; other < ranks; ++other) {
        if (received[other] == contained[other]) return false;
      }
      return true;
    } else {
      ++contained[rank];
      return false;
    }
  }

  /// Notes that the pushes of one clock are applied.
  GPUSOCK_FN void apply_all() const {
    for (int rank = 0; rank < ranks; ++rank) ++contained[rank];
  }

  /// Returned by blocking_rank().
  static constexpr int kNobody = -1;

  /// Returns kNobody if `reader`, which has made `own_clock` pushes, may read; else a rank whose push must come first.
  /// If `lost` is not 0 for one of these ranks, and its push has not come, it returns that one.
  GPUSOCK_FN int blocking_rank(int reader, std::uint64_t own_clock, const std::uint32_t* lost) const {
    int blocking = kNobody;
    for (int rank = 0; rank < ranks; ++rank) {
      if (clock.suffices(contained[rank], rank == reader, own_clock)) continue;
      blocking = rank;
      if (is_out_of_reach(rank, reader, own_clock, lost)) return rank;
    }
    return blocking;
  }

  /// True if a read of `reader` needs a push of a lost rank that has not come.
  GPUSOCK_FN bool is_out_of_reach(int rank, int reader, std::uint64_t own_clock, const std::uint32_t* lost) const {
    return lost[rank] != 0 && !clock.suffices(received[rank], rank == reader, own_clock);
  }
};

}  // namespace param_sync::store
