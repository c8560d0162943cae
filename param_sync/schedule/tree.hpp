#pragma once
/// @file Trees over ranks, and the all-reduce that goes up and down one.

#include "param_sync/schedule/builder.hpp"

#include <vector>

namespace param_sync::schedule {

/// The parent of each rank; kNobody for the root.
using Tree = std::vector<int>;

int height(const Tree& tree);

/// Sums these chunks up the tree and sends them down again, chunk by chunk. Uses the lane `lane` for sums, and the
/// `spread_lanes` lanes after it for results: with one, a rank sends to one child after the other; with more, to so
/// many side by side.
void reduce_and_broadcast(Builder& builder, const Tree& tree, Range chunks, int lane, int channel,
                          int spread_lanes = 1);

/// The parents in a heap over these ranks, the first one at its root: that at index i has its parent at (i - 1) /
/// arity.
Tree heap_tree(const std::vector<int>& ranks, int arity);

}  // namespace param_sync::schedule
