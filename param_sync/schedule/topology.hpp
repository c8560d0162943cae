#pragma once
/// @file Topologies: which nodes are linked, and how fast. docs/schedules.md has the file format.

#include <string_view>
#include <vector>

namespace param_sync::schedule {

inline constexpr int kTopologyNodesMax = 128;  ///< most nodes of a topology
inline constexpr int kTopologyLinksMax = 512;  ///< most links of a topology

/// A link between two nodes. It carries `bandwidth` in both directions at the same time.
struct Link {
  int a = 0;             ///< a node
  int b = 0;             ///< another one
  double bandwidth = 0;  ///< GB/s; 0: broken
};

/// Nodes and their links.
class Topology {
 public:
  /// Adds up the bandwidths of links between the same two nodes, and leaves broken links out. Throws Error if a link is
  /// invalid, or if nodes cannot be reached; the error names them.
  Topology(int nodes, const std::vector<Link>& links);

  /// Number of nodes.
  int nodes() const { return nodes_; }
  /// One link for each pair of linked nodes.
  const std::vector<Link>& links() const { return links_; }

  /// The least bandwidth across any cut of the nodes into two parts. No broadcast is faster. 0 for one node.
  double min_cut() const;

 private:
  int nodes_;
  std::vector<Link> links_;  // one for each pair of linked nodes
};

/// Returns the topology that a JSON text describes. Throws Error, which names the field, if the text is not JSON, or if
/// a field is missing, has another type or is out of range. Also throws what the constructor throws.
Topology topology_from_json(std::string_view text);

}  // namespace param_sync::schedule
