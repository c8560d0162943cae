#pragma once
/// @file The clocks of a range at its owner: which pushes have come, which ones the weights contain, and which reads
/// may be answered. Servers and the simulation of the tests use the same code.

#include "param_sync/store/clock/clock.hpp"

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync::store {

/// The clocks of a range.
struct RangeClocks {
  Clock clock;                         ///< says which pushes a read must see
  std::uint64_t* received = nullptr;   ///< by rank: how many of its pushes have come as a whole; with a clock that is
                                       ///< kDropsLate, the number of the last one, from 1
  std::uint64_t* contained = nullptr;  ///< by rank: how many of its pushes the weights contain; with a clock that is
                                       ///< kDropsLate, how many sums, which is the same for all
  int ranks = 1;                       ///< how many ranks there are

  /// True if a rank may say that it has made so many pushes. With a clock that is kDropsLate a rank that is late may go
  /// on from the newest version. It may not go back, and not ahead.
  GPUSOCK_FN bool may_have(int rank, std::uint64_t pushes) const {
    if (clock.drops_late()) {
      return pushes >= received[rank] && (pushes == received[rank] || pushes <= contained[rank]);
    }
    return pushes == received[rank];
  }

  /// True if the next push of a rank may be taken. Otherwise its last one is not applied yet, and still has its memory.
  GPUSOCK_FN bool may_push(int rank) const { return !clock.is_in_rank_order() || received[rank] <= contained[rank]; }

  /// Notes that a push of a rank comes, which has made so many before. may_have() was true.
  GPUSOCK_FN void begin_push(int rank, std::uint64_t pushes) const {
    if (clock.drops_late()) received[rank] = pushes;
  }

  /// With a clock that is kDropsLate: which pushes of the next version have come, as bits by rank. `lost`: null, or
  /// with it those that can still come are among them.
  GPUSOCK_FN std::uint64_t come(const std::uint32_t* lost = nullptr) const {
    std::uint64_t bits = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const bool is_there = received[rank] > contained[rank] || (lost != nullptr && lost[rank] == 0);
      bits |= std::uint64_t{is_there} << rank;
    }
    return bits;
  }

  /// Likewise: which pushes are summed now, or 0.
  GPUSOCK_FN std::uint64_t summed() const { return clock.summed(come(), ranks); }

  /// Likewise: true if there is none to wait for. `lost`: by rank, not 0 if it is lost.
  GPUSOCK_FN bool all_have_come(const std::uint32_t* lost) const {
    for (int rank = 0; rank < ranks; ++rank) {
      if (received[rank] <= contained[rank] && lost[rank] == 0) return false;
    }
    return true;
  }

  /// Notes that a push of a rank has come as a whole. Returns true if all ranks' pushes of one clock are to be applied
  /// together now, and then noted by apply_all().
  GPUSOCK_FN bool end_push(int rank) const {
    ++received[rank];
    if (clock.drops_late()) return summed() != 0;  // a late push changes nothing of what has come
    if (!clock.is_in_rank_order()) {
      ++contained[rank];
      return false;
    }
    for (int other = 0; other < ranks; ++other) {
      if (received[other] == contained[other]) return false;
    }
    return true;
  }

  /// Notes that the pushes of one clock are applied.
  GPUSOCK_FN void apply_all() const {
    for (int rank = 0; rank < ranks; ++rank) ++contained[rank];
  }

  /// How many pushes of all other ranks the weights contain.
  GPUSOCK_FN std::uint64_t of_others(int reader) const {
    std::uint64_t count = 0;
    for (int rank = 0; rank < ranks; ++rank) count += rank == reader ? 0 : contained[rank];
    return count;
  }

  /// No rank.
  static constexpr int kNobody = -1;

  /// True if `reader`, which has made `own_clock` pushes, may read. `after`: null, or by rank: how many of its pushes
  /// the reader asks for, whatever the clock.
  GPUSOCK_FN bool may_read(int reader, std::uint64_t own_clock, const std::uint64_t* after = nullptr) const {
    for (int rank = 0; rank < ranks; ++rank) {
      if (!suffice(contained, rank, reader, own_clock, after)) return false;
    }
    return true;
  }

  /// Returns a lost rank whose push the read needs and that has not come, or kNobody. `lost`: by rank, 0, or a number
  /// that is larger for a later loss. Of several ranks it returns the first one: others may have failed because of it.
  GPUSOCK_FN int read_waits_for_lost(int reader, std::uint64_t own_clock, const std::uint32_t* lost,
                                     const std::uint64_t* after = nullptr) const {
    if (clock.drops_late()) return version_waits_for_lost(lost);
    return first_lost(lost, [&](int rank) { return !suffice(received, rank, reader, own_clock, after); });
  }

  /// Returns a lost rank whose push must be applied with those that are kept, or kNobody: then may_push() stays false.
  GPUSOCK_FN int push_waits_for_lost(const std::uint32_t* lost) const {
    if (clock.drops_late()) return version_waits_for_lost(lost);
    return first_lost(lost, [&](int rank) { return received[rank] == contained[rank]; });
  }

  /// With a clock that is kDropsLate: returns a lost rank without which the next version cannot be, or kNobody.
  GPUSOCK_FN int version_waits_for_lost(const std::uint32_t* lost) const {
    if (clock.summed(come(lost), ranks) != 0) return kNobody;
    return first_lost(lost, [&](int rank) { return received[rank] <= contained[rank]; });
  }

  /// True if so many pushes of a rank suffice for a read.
  GPUSOCK_FN bool suffice(const std::uint64_t* pushes, int rank, int reader, std::uint64_t own_clock,
                          const std::uint64_t* after) const {
    return clock.suffices(pushes[rank], rank == reader, own_clock) && (after == nullptr || pushes[rank] >= after[rank]);
  }

  /// The rank that was lost first of those for which is_needed(rank), or kNobody.
  template <class IsNeeded>
  GPUSOCK_FN int first_lost(const std::uint32_t* lost, IsNeeded is_needed) const {
    int first = kNobody;
    for (int rank = 0; rank < ranks; ++rank) {
      if (lost[rank] == 0 || !is_needed(rank)) continue;
      if (first == kNobody || lost[rank] < lost[first]) first = rank;
    }
    return first;
  }
};

}  // namespace param_sync::store
