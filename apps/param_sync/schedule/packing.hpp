#pragma once
/// @file How much each of several spanning trees carries, so that together they broadcast as fast as the links allow.

#include "schedule/topology.hpp"
#include "schedule/tree.hpp"

#include <vector>

namespace param_sync::schedule {

struct PackedTree {
  Tree tree;
  double bandwidth = 0;  ///< GB/s
};

/// Trees with node 0 as their root whose bandwidths add up to at least 99 % of the topology's min_cut() and fit its
/// links (Edmonds, 1973: trees that reach the bound exist). At most as many as there are directions of links. Throws
/// Error where it does not get there.
std::vector<PackedTree> pack_trees(const Topology& topology);

}  // namespace param_sync::schedule
