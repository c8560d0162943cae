#pragma once
/// @file How much each of several spanning trees carries, so that together they broadcast as fast as the links allow.

#include "param_sync/schedule/topology.hpp"
#include "param_sync/schedule/tree.hpp"

#include <vector>

namespace param_sync::schedule {

struct PackedTree {
  Tree tree;
  double bandwidth = 0;  ///< GB/s
};

/// Trees with node 0 as their root that fit the topology's links. Their bandwidths add up to at least 98 % of its
/// min_cut() (Edmonds, 1973: trees that reach it exist), and in nearly all cases to 99 %. At most as many as there are
/// directions of links, or 16. They are grown one after the other, the widest first (Lovász, 1976).
std::vector<PackedTree> pack_trees(const Topology& topology);

/// The sum, GB/s.
double bandwidth_of(const std::vector<PackedTree>& trees);

}  // namespace param_sync::schedule
