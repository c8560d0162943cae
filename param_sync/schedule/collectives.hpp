#pragma once
/// @file Schedules of collectives that are no all-reduce. `nodes` is the number of ranks. Chunks that do not divide
/// evenly are shared out so that the parts of two ranks differ by one chunk at most; a part may be empty.

#include "param_sync/schedule/schedule.hpp"

namespace param_sync::schedule {

/// The two halves of the ring, of nodes - 1 steps each. In each step, each rank sends one part.
Schedule ring_reduce_scatter(int nodes, int chunks);
Schedule ring_all_gather(int nodes, int chunks);

/// The root's data goes from rank to rank, chunk after chunk.
Schedule chain_broadcast(int nodes, int chunks, int root);

}  // namespace param_sync::schedule
