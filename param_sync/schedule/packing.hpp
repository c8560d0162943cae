#pragma once
/// @file Finds spanning trees, and how much each carries, so that together they broadcast as fast as the links allow.

#include "param_sync/schedule/topology.hpp"
#include "param_sync/schedule/tree.hpp"

#include <vector>

namespace param_sync::schedule {

struct PackedTree {
  Tree tree;
  double bandwidth = 0;  ///< GB/s
};

/// Returns trees with root 0 that fit the topology's links. Their bandwidths add up to at least 98 % of its min_cut()
/// (Edmonds, 1973: trees that reach it exist), and in nearly all cases to 99 %. There are at most two trees for each
/// link, or 16 if that is more. They are grown one after the other, the widest first (Lovász, 1976).
std::vector<PackedTree> pack_trees(const Topology& topology);

/// Returns the sum of the trees' bandwidths in GB/s.
double bandwidth_of(const std::vector<PackedTree>& trees);

}  // namespace param_sync::schedule
