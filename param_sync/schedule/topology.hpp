#pragma once
/// @file Which nodes are linked, and how fast: docs/schedules.md has the file format.

#include <string_view>
#include <vector>

namespace param_sync::schedule {

inline constexpr int kTopologyNodesMax = 128;  ///< nodes of a topology
inline constexpr int kTopologyLinksMax = 512;  ///< links of a topology

/// Carries `bandwidth` in each direction at once.
struct Link {
  int a = 0;             ///< a node
  int b = 0;             ///< another one
  double bandwidth = 0;  ///< GB/s; 0: broken
};

/// Nodes and their links.
class Topology {
 public:
  /// Links of the same two nodes add up; broken ones are left out. Throws Error where a link is invalid, or some nodes
  /// cannot be reached: it names them.
  Topology(int nodes, const std::vector<Link>& links);

  /// How many nodes there are.
  int nodes() const { return nodes_; }
  /// One link for each two nodes that are linked.
  const std::vector<Link>& links() const { return links_; }

  /// The least bandwidth of the links between any two halves of the nodes: no broadcast is faster. 0 for one node.
  double min_cut() const;

 private:
  int nodes_;
  std::vector<Link> links_;  // one for each two nodes
};

/// The topology that a text describes. Throws Error, which names the field: no JSON, a field that is missing or has
/// another type, a number out of range; and as the constructor.
Topology topology_from_json(std::string_view text);

}  // namespace param_sync::schedule
