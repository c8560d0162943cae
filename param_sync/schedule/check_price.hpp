#pragma once
/// @file What checking a schedule costs, from its ops alone: known before anything is allocated for the check.

#include "param_sync/schedule/schedule.hpp"

#include <cstdint>

namespace param_sync::schedule {

/// What the checker's clocks know. They are only asked about ops of the same rank, and most schedules order these by
/// lanes and `after` alone: then clocks need no other ranks' lanes.
enum class Known : std::uint8_t {
  within_rank,   ///< what lanes and `after` order: less than all
  across_ranks,  ///< what messages order, too
};

/// Upper bounds of what a run of the checker takes.
struct CheckPrice {
  std::uint64_t chunk_bytes = 0;  ///< what each chunk holds at each rank, and which ops have used it
  std::uint64_t clock_bytes = 0;  ///< which ops are complete: by lane, channel and op of an `after`
  std::uint64_t op_bytes = 0;     ///< of each op, lane and channel
  std::uint64_t steps = 0;        ///< words that it reads or writes
};

inline constexpr std::uint64_t kCheckStateBytesMax = std::uint64_t{1} << 30;  ///< of chunks and clocks: few ops can
                                                                              ///< need many
inline constexpr std::uint64_t kCheckOpBytesMax = std::uint64_t{2} << 30;
inline constexpr std::uint64_t kCheckStepsMax = std::uint64_t{20} << 30;  ///< half a minute or less

/// The price of a schedule that validate() passes. Takes time and memory in proportion to its ops.
CheckPrice price_of_check(const Schedule& schedule, Known known);

/// What checking any schedule of so many chunks costs at least: known before it is made.
CheckPrice least_price_of_check(int nodes, int chunks);

/// Throws Error, which says what the schedule asks for and which limit that passes, and how to make it smaller.
void require_affordable(const CheckPrice& price);

}  // namespace param_sync::schedule
