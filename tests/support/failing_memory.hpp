#pragma once
/// @file Makes allocations of the program fail: the n-th from now, or all from the n-th on.

#include <cstdint>

namespace gpusock::failing_memory {

enum class Extent { one, all_from_there };

/// From now on the `nth` allocation (from 1) by operator new throws std::bad_alloc, on whichever thread; or all from it
/// on.
void arm(std::uint64_t nth, Extent extent);

/// No allocation fails any more. True if one has.
bool disarm();

/// Which allocations count; nullptr: all. Called while armed, on the thread that allocates; must not allocate.
extern bool (*counts)();

}  // namespace gpusock::failing_memory
