#pragma once
/// @file The cheapest spanning tree of a directed graph.

#include <vector>

namespace param_sync::schedule {

struct Arc {
  int from = 0;
  int to = 0;
  double cost = 0;
};

/// The arcs (their indices), one into each node but `root`, that lead from the root to all nodes and cost least. All
/// nodes can be reached. (Chu and Liu, 1965; Edmonds, 1967.)
std::vector<int> cheapest_tree(int nodes, int root, const std::vector<Arc>& arcs);

}  // namespace param_sync::schedule
