#pragma once
/// @file Computes what checking a schedule costs, from its ops alone, before anything is allocated for the check.

#include "param_sync/schedule/schedule.hpp"

#include <cstdint>

namespace param_sync::schedule {

/// Which orders between ops the checker's clocks know. The checker asks clocks only about ops of the same rank. In most
/// schedules lanes and `after` alone order these ops; then clocks need no entries for other ranks' lanes.
enum class Known : std::uint8_t {
  within_rank,   ///< orders by lanes and `after`, which may not be all orders
  across_ranks,  ///< also orders by messages
};

/// Upper bounds of the memory and the work that a run of the checker takes.
struct CheckPrice {
  std::uint64_t chunk_bytes = 0;  ///< for what each chunk holds at each rank, and which ops have used it
  std::uint64_t clock_bytes = 0;  ///< for the clocks of lanes, channels and ops that an `after` names
  std::uint64_t op_bytes = 0;     ///< for the other data of ops, lanes and channels
  std::uint64_t steps = 0;        ///< words that the checker reads or writes
};

inline constexpr std::uint64_t kCheckStateBytesMax = std::uint64_t{1} << 30;  ///< for chunks and clocks, which can be
                                                                              ///< large even if there are few ops
inline constexpr std::uint64_t kCheckOpBytesMax = std::uint64_t{2} << 30;
inline constexpr std::uint64_t kCheckStepsMax = std::uint64_t{20} << 30;  ///< at most half a minute

/// Returns the price of a schedule that validate() accepts. Takes time and memory in proportion to its ops.
CheckPrice price_of_check(const Schedule& schedule, Known known);

/// Returns a lower bound of the price of any schedule of so many nodes and chunks, before the schedule is made.
CheckPrice least_price_of_check(int nodes, int chunks);

/// Throws Error if a limit is exceeded. what() says what the check would take, the limit, and how to take less.
void require_affordable(const CheckPrice& price);

}  // namespace param_sync::schedule
