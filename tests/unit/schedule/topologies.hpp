#pragma once
/// @file Topologies for tests.

#include "param_sync/schedule/topology.hpp"

#include <random>
#include <vector>

namespace schedule_test {

// Sanitizers' builds are not optimized: there fewer nodes, links and mutants show as much of memory.
#ifdef SCHEDULE_TEST_FEW
inline constexpr bool kFew = true;
#else
inline constexpr bool kFew = false;
#endif

using param_sync::schedule::Link;
using param_sync::schedule::Topology;

inline Topology ring_topology(int nodes) {
  std::vector<Link> links;
  for (int node = 0; node + 1 < nodes; ++node) links.push_back({node, node + 1, 10});
  if (nodes > 2) links.push_back({nodes - 1, 0, 10});
  return Topology(nodes, links);
}

inline Topology full_topology(int nodes) {
  std::vector<Link> links;
  for (int a = 0; a < nodes; ++a) {
    for (int b = a + 1; b < nodes; ++b) links.push_back({a, b, 5});
  }
  return Topology(nodes, links);
}

/// The NVLinks of a DGX-1 with V100s, 25 GB/s each: two cliques of four, and each GPU's twin in the other one.
inline std::vector<Link> dgx1_links() {
  std::vector<Link> links;
  for (int clique = 0; clique < 8; clique += 4) {
    links.push_back({clique, clique + 1, 25});
    links.push_back({clique, clique + 2, 25});
    links.push_back({clique, clique + 3, 50});
    links.push_back({clique + 1, clique + 2, 50});
    links.push_back({clique + 1, clique + 3, 25});
    links.push_back({clique + 2, clique + 3, 50});
  }
  links.push_back({0, 4, 50});
  links.push_back({1, 5, 50});
  links.push_back({2, 6, 25});
  links.push_back({3, 7, 25});
  return links;
}

/// Connected, with uneven bandwidths.
inline Topology random_topology(int nodes, int more_links, unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };
  std::vector<Link> links;
  for (int node = 1; node < nodes; ++node) links.push_back({below(node), node, 1.0 + below(40)});
  for (int i = 0; i < more_links; ++i) {
    const int a = below(nodes), b = below(nodes);
    if (a != b) links.push_back({a, b, 0.5 * below(60)});  // some of them broken
  }
  return Topology(nodes, links);
}

}  // namespace schedule_test
