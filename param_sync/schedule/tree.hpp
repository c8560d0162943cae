#pragma once
/// @file Trees over ranks, and the all-reduce that sums up a tree and sends results down it.

#include "param_sync/schedule/builder.hpp"

#include <vector>

namespace param_sync::schedule {

/// The parent of each rank; kNobody for the root.
using Tree = std::vector<int>;

int height(const Tree& tree);

/// Sums these chunks up the tree and sends the sums down again, chunk by chunk. Uses lane `lane` for sums, and the next
/// `spread_lanes` lanes for results. With one such lane a rank sends to one child after the other; with more it sends
/// to that many children at the same time.
void reduce_and_broadcast(Builder& builder, const Tree& tree, Range chunks, int lane, int channel,
                          int spread_lanes = 1);

/// Returns the tree of a heap over these ranks. The first rank is the root; the parent of the rank at index i is the
/// rank at index (i - 1) / arity.
Tree heap_tree(const std::vector<int>& ranks, int arity);

}  // namespace param_sync::schedule
