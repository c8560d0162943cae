#pragma once
/// @file After a loss: which version of the weights the ranks that are left have together. recover() and the simulation
/// of the tests use the same code.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace param_sync::store {

/// Which versions of a range a rank has, as one number, so that ranks can gather them: 0: none; else the newest one,
/// and whether it has the one before, too.
struct HeldVersions {
  std::uint32_t number = 0;

  static HeldVersions of(std::uint64_t newest, bool has_before) {
    return {static_cast<std::uint32_t>(2 * (newest + 1) + (has_before ? 1 : 0))};
  }
  bool none() const { return number == 0; }
  std::uint64_t newest() const { return number / 2 - 1; }
  bool has(std::uint64_t clock) const {
    return !none() && (clock == newest() || (clock + 1 == newest() && number % 2 == 1));
  }
};

/// The newest version that the ranks together have of all ranges of which they have any. `of_ranks`: what each rank has
/// of each range, by rank, then by range.
inline std::uint64_t newest_of_all(std::span<const HeldVersions> of_ranks, std::size_t ranges) {
  std::uint64_t clock = std::numeric_limits<std::uint64_t>::max();
  for (std::size_t range = 0; range < ranges; ++range) {
    std::uint64_t newest = 0;
    bool some = false;
    for (std::size_t i = range; i < of_ranks.size(); i += ranges) {
      some = some || !of_ranks[i].none();
      if (!of_ranks[i].none()) newest = std::max(newest, of_ranks[i].newest());
    }
    if (some) clock = std::min(clock, newest);
  }
  return clock;
}

/// The first rank that has a version of a range. How many ranks there are, if none has it.
inline std::size_t first_with(std::span<const HeldVersions> of_ranks, std::size_t ranges, std::size_t range,
                              std::uint64_t clock) {
  std::size_t rank = 0;
  while (rank < of_ranks.size() / ranges && !of_ranks[rank * ranges + range].has(clock)) ++rank;
  return rank;
}

}  // namespace param_sync::store
