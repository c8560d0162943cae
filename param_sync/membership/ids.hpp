#pragma once
/// @file Sets of ranks, views without addresses, and the two rules on which the agreement is safe: who may decide a
/// view, and which number it has.

#include <algorithm>
#include <bit>
#include <cstdint>

namespace param_sync::membership {

inline constexpr int kIdsMax = 64;  ///< ids are 0 to 63

/// A set of ids: bit i is id i.
using Ids = std::uint64_t;

constexpr Ids only(int id) { return Ids{1} << id; }
constexpr bool has(Ids ids, int id) { return id >= 0 && id < kIdsMax && (ids >> id & 1) != 0; }
constexpr bool contains(Ids all, Ids some) { return (some & ~all) == 0; }
constexpr int count(Ids ids) { return std::popcount(ids); }
constexpr int lowest(Ids ids) { return std::countr_zero(ids); }  ///< 64 if there is none

/// The lowest member of `ids` after `id`, or 64.
constexpr int next_after(Ids ids, int id) { return id + 1 >= kIdsMax ? kIdsMax : lowest(ids & ~Ids{0} << (id + 1)); }

/// The id after the highest of `ids`, or 0.
constexpr int id_after(Ids ids) { return kIdsMax - std::countl_zero(ids); }

/// The ids from `first` on, `count` of them.
constexpr Ids new_ids(int first, int count) { return count == 0 ? 0 : ~Ids{0} >> (kIdsMax - count) << first; }

/// Most nodes that may join with the next view of `members`. So those that were there before are a majority of it, and
/// go on if all that have joined are lost.
constexpr int joiners_max(Ids members, int ids) { return std::min(count(members), kIdsMax - ids); }

/// A view without its addresses.
struct Outline {
  std::uint64_t number = 0;
  Ids members = 0;

  friend bool operator==(const Outline&, const Outline&) = default;
};

/// True if `some` of the members of a view may decide who goes on: more than half of them, or half of them with the
/// lowest id. Two sets that may both decide have a member in common. Nodes that join are in `some` and not in `of`:
/// they have no vote.
constexpr bool is_majority(Ids some, Ids of) {
  const int twice = 2 * count(some & of);
  return twice > count(of) || (twice == count(of) && has(some, lowest(of)));
}

/// The number of a view that `id` proposes: greater than `highest`, and no other rank proposes it.
constexpr std::uint64_t number_after(std::uint64_t highest, int id) {
  return ((highest >> 8) + 1) << 8 | static_cast<std::uint64_t>(id);
}

/// The id of the rank that has proposed the view of this number.
constexpr int proposer(std::uint64_t number) { return static_cast<int>(number & 0xff); }

inline constexpr std::uint64_t kNumberMax = std::uint64_t{1} << 48;  ///< no run gets so far: a greater number is junk

}  // namespace param_sync::membership
