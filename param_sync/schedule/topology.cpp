#include "param_sync/schedule/topology.hpp"

#include "param_sync/schedule/json_node.hpp"
#include "param_sync/schedule/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace param_sync::schedule {
namespace {

void require_all_reached(int nodes, const std::vector<Link>& links) {
  std::vector<int> reached{0};
  std::vector<bool> seen(static_cast<std::size_t>(nodes));
  seen[0] = true;
  for (std::size_t i = 0; i < reached.size(); ++i) {
    for (const Link& link : links) {
      if (link.a != reached[i] && link.b != reached[i]) continue;
      const int other = link.a == reached[i] ? link.b : link.a;
      if (seen[static_cast<std::size_t>(other)]) continue;
      seen[static_cast<std::size_t>(other)] = true;
      reached.push_back(other);
    }
  }
  std::string missing;
  for (int node = 0; node < nodes; ++node) {
    if (!seen[static_cast<std::size_t>(node)]) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", node);
  }
  if (!missing.empty()) throw Error("the topology: no links lead from node 0 to " + missing);
}

}  // namespace

Topology::Topology(int nodes, const std::vector<Link>& links) : nodes_(nodes) {
  if (nodes < 1 || nodes > kTopologyNodesMax) {
    throw Error(fmt::format("the topology: {} nodes, not 1 to {}", nodes, kTopologyNodesMax));
  }
  std::map<std::pair<int, int>, double> sums;
  for (const Link& link : links) {
    const auto refuse = [&](const std::string& why) {
      throw Error(fmt::format("the topology: link {} to {}: {}", link.a, link.b, why));
    };
    const auto [low, high] = std::minmax(link.a, link.b);
    if (low < 0 || high >= nodes) refuse(fmt::format("nodes are 0 to {}", nodes - 1));
    if (low == high) refuse("both ends are one node");
    if (!std::isfinite(link.bandwidth) || link.bandwidth < 0 || link.bandwidth > 1e9) {
      refuse("the bandwidth is not 0 to 10^9 GB/s");
    }
    if (link.bandwidth > 0) sums[{low, high}] += link.bandwidth;
  }
  if (sums.size() > kTopologyLinksMax) {
    throw Error(
        fmt::format("the topology: {} pairs of nodes are linked, more than {}", sums.size(), kTopologyLinksMax));
  }
  for (const auto& [ends, bandwidth] : sums) links_.push_back({ends.first, ends.second, bandwidth});
  require_all_reached(nodes_, links_);
}

/// The algorithm of Stoer and Wagner, 1997.
double Topology::min_cut() const {
  const auto size = static_cast<std::size_t>(nodes_);
  std::vector<std::vector<double>> weight(size, std::vector<double>(size));
  for (const Link& link : links_) {
    weight[static_cast<std::size_t>(link.a)][static_cast<std::size_t>(link.b)] += link.bandwidth;
    weight[static_cast<std::size_t>(link.b)][static_cast<std::size_t>(link.a)] += link.bandwidth;
  }
  std::vector<std::size_t> left(size);  // nodes that are not yet merged into another one
  for (std::size_t node = 0; node < size; ++node) left[node] = node;
  double least = size > 1 ? std::numeric_limits<double>::infinity() : 0;
  while (left.size() > 1) {
    std::vector<double> bound(size);
    std::vector<std::size_t> order, open = left;
    while (!open.empty()) {
      const auto next = std::max_element(open.begin(), open.end(), [&](auto a, auto b) { return bound[a] < bound[b]; });
      order.push_back(*next);
      open.erase(next);
      for (const std::size_t node : open) bound[node] += weight[order.back()][node];
    }
    const std::size_t last = order.back(), before = order[order.size() - 2];
    least = std::min(least, bound[last]);
    for (const std::size_t node : left) {
      weight[before][node] += weight[last][node];
      weight[node][before] = weight[before][node];
    }
    std::erase(left, last);
  }
  return least;
}

Topology topology_from_json(std::string_view text) {
  const JsonDocument document(text, "the topology");
  const JsonNode root = document.root();
  root.field("version").number(1, 1);
  const int nodes = root.field("nodes").number(1, kTopologyNodesMax);
  const JsonNode list = root.field("links");
  std::vector<Link> links;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonNode link = list.item(i);
    links.push_back({link.field("a").number(0, nodes - 1), link.field("b").number(0, nodes - 1),
                     link.field("bandwidth").real(0, 1e9)});
  }
  return Topology(nodes, links);
}

}  // namespace param_sync::schedule
