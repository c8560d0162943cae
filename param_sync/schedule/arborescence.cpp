#include "param_sync/schedule/arborescence.hpp"

#include "param_sync/schedule/schedule.hpp"

#include <algorithm>

namespace param_sync::schedule {
namespace {

constexpr std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// For each node but the root, the cheapest arc into it.
std::vector<int> cheapest_into(int nodes, int root, const std::vector<Arc>& arcs) {
  std::vector<int> best(at(nodes), kNobody);
  for (int i = 0; i < static_cast<int>(arcs.size()); ++i) {
    const Arc& arc = arcs[at(i)];
    if (arc.to == root || arc.from == arc.to) continue;
    int& into = best[at(arc.to)];
    if (into == kNobody || arc.cost < arcs[at(into)].cost) into = i;
  }
  return best;
}

/// Numbers the cycles of the chosen arcs from 0 on, and then the nodes on none of them. Returns how many are cycles.
int number_components(int nodes, int root, const std::vector<Arc>& arcs, const std::vector<int>& into,
                      std::vector<int>& component, int& components) {
  std::vector<int> visitor(at(nodes), kNobody);
  component.assign(at(nodes), kNobody);
  components = 0;
  for (int start = 0; start < nodes; ++start) {
    int node = start;
    while (node != root && visitor[at(node)] == kNobody) {
      visitor[at(node)] = start;
      node = arcs[at(into[at(node)])].from;
    }
    if (node == root || visitor[at(node)] != start || component[at(node)] != kNobody) continue;
    for (; component[at(node)] == kNobody; node = arcs[at(into[at(node)])].from) component[at(node)] = components;
    ++components;
  }
  const int cycles = components;
  for (int& number : component) {
    if (number == kNobody) number = components++;
  }
  return cycles;
}

}  // namespace

std::vector<int> cheapest_tree(int nodes, int root, const std::vector<Arc>& arcs) {
  std::vector<int> into = cheapest_into(nodes, root, arcs);
  std::vector<int> component;
  int components = 0;
  const int cycles = number_components(nodes, root, arcs, into, component, components);
  if (cycles > 0) {
    // Each cycle becomes one node. An arc into it costs what it costs more than the one that it replaces.
    std::vector<Arc> outer;
    std::vector<int> original;
    for (int i = 0; i < static_cast<int>(arcs.size()); ++i) {
      const Arc& arc = arcs[at(i)];
      const int from = component[at(arc.from)], to = component[at(arc.to)];
      if (from == to || arc.to == root) continue;
      outer.push_back({from, to, to < cycles ? arc.cost - arcs[at(into[at(arc.to)])].cost : arc.cost});
      original.push_back(i);
    }
    for (const int chosen : cheapest_tree(components, component[at(root)], outer)) {
      const int arc = original[at(chosen)];
      into[at(arcs[at(arc)].to)] = arc;
    }
  }
  std::erase(into, kNobody);  // the root's
  return into;
}

}  // namespace param_sync::schedule
