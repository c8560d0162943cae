#pragma once
/// @file Meetings: all operations in which a thread waits for its block or for lanes of its warp come here.

#include <cstdint>

namespace cpu_device::detail {

/// What threads meet for. They wait until all that take part have arrived; in calls, until the leader has made it, too.
enum class Meeting : std::uint8_t { barrier, block_call, lanes_call, sync, shuffle, ballot, gather };

}  // namespace cpu_device::detail

/// The running thread meets its block (barrier, block_call), or the lanes of `mask`. Returns the address of its result:
///
///     meeting      value               other            result
///     barrier      the predicate       -                BarrierCount
///     sync         -                   -                -
///     shuffle      the thread's value  the source lane  std::uint64_t: that lane's value, or the thread's own
///     ballot       the predicate       -                unsigned: the lanes whose predicate holds
///     gather       the thread's value  std::uint64_t*   unsigned: the lanes that have a value; the values are at
///     `other` block_call,  the call's name     -                null for the leader (rank 0), which then makes the
///     call; for lanes_call                                        the others what it has handed to them
///     (group_call.hpp)
///
/// Throws std::logic_error outside of kernels. Kernels call it without a function between them and it: fiber.cpp says
/// why.
extern "C" const void* cpu_device_meet(cpu_device::detail::Meeting meeting, unsigned mask, std::uint64_t value,
                                       std::uint64_t other);
