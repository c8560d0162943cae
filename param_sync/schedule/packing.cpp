#include "param_sync/schedule/packing.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace param_sync::schedule {
namespace {

constexpr double kUnits = 1 << 14;  // bandwidths are counted in units of bound / kUnits
constexpr double kWantedShare = 0.992;
constexpr double kNarrower = 0.8;         // factor to the next width tried; 0.5 gives trees of ever smaller width
constexpr std::size_t kTreesAlways = 16;  // trees that are always allowed, even if there are few links

constexpr std::size_t index_of(int index) { return static_cast<std::size_t>(index); }

/// Grows trees, and keeps what each direction of each link can still carry in addition to them.
class Growth {
 public:
  explicit Growth(const Topology& topology)
      : nodes_(topology.nodes()),
        neighbours_(index_of(nodes_)),
        rest_(index_of(nodes_), std::vector<double>(index_of(nodes_))) {
    for (const Link& link : topology.links()) {
      rest_[index_of(link.a)][index_of(link.b)] = rest_[index_of(link.b)][index_of(link.a)] = link.bandwidth;
      neighbours_[index_of(link.a)].push_back(link.b);
      neighbours_[index_of(link.b)].push_back(link.a);
    }
  }

  double widest() const {
    double widest = 0;
    for (const auto& row : rest_) widest = std::max(widest, *std::max_element(row.begin(), row.end()));
    return widest;
  }

  /// Grows a tree that takes `width` from each of its arcs. Before, the root has paths of bandwidth `left` to each
  /// other node; after, of `left` - `width`. Returns an empty tree, and takes nothing, if it finds none. (Lovász,
  /// 1976: the tree may take an arc if the rest still has paths of `left` from the root and the arc's start to the
  /// arc's end.)
  Tree grow(double width, double left) {
    const auto before = rest_;
    Tree tree(index_of(nodes_), kNobody);
    std::vector<int> reached{0};
    for (std::size_t i = 0; i < reached.size(); ++i) {  // nodes near the root first: flat trees are less deep
      const int from = reached[i];
      for (const int to : neighbours_[index_of(from)]) {
        if (to == 0 || tree[index_of(to)] != kNobody || rest_[index_of(from)][index_of(to)] < width) continue;
        if (!has_flow(from, to, left)) continue;  // later arcs only take more: trying again would not help
        rest_[index_of(from)][index_of(to)] -= width;
        tree[index_of(to)] = from;
        reached.push_back(to);
      }
    }
    if (reached.size() == index_of(nodes_)) return tree;
    rest_ = before;
    return {};
  }

 private:
  /// True if the root and `from` together have paths of bandwidth `wanted` to `to`.
  bool has_flow(int from, int to, double wanted) const {
    auto rest = rest_;
    const double enough = wanted * (1 - 1e-9);
    for (double flow = 0; flow < enough;) {
      std::vector<int> came_from(index_of(nodes_), kNobody), queue{0};
      came_from[0] = 0;
      if (from != 0) {
        came_from[index_of(from)] = from;
        queue.push_back(from);
      }
      for (std::size_t i = 0; i < queue.size() && came_from[index_of(to)] == kNobody; ++i) {
        for (const int next : neighbours_[index_of(queue[i])]) {
          if (came_from[index_of(next)] != kNobody || rest[index_of(queue[i])][index_of(next)] <= wanted * 1e-12)
            continue;
          came_from[index_of(next)] = queue[i];
          queue.push_back(next);
        }
      }
      if (came_from[index_of(to)] == kNobody) return false;
      double part = wanted - flow;
      for (int node = to; came_from[index_of(node)] != node; node = came_from[index_of(node)])
        part = std::min(part, rest[index_of(came_from[index_of(node)])][index_of(node)]);
      for (int node = to; came_from[index_of(node)] != node; node = came_from[index_of(node)]) {
        rest[index_of(came_from[index_of(node)])][index_of(node)] -= part;
        rest[index_of(node)][index_of(came_from[index_of(node)])] += part;
      }
      flow += part;
    }
    return true;
  }

  int nodes_;
  std::vector<std::vector<int>> neighbours_;
  std::vector<std::vector<double>> rest_;
};

}  // namespace

double bandwidth_of(const std::vector<PackedTree>& trees) {
  double sum = 0;
  for (const PackedTree& packed : trees) sum += packed.bandwidth;
  return sum;
}

std::vector<PackedTree> pack_trees(const Topology& topology) {
  if (topology.nodes() == 1) return {{Tree{kNobody}, 0}};
  const double bound = topology.min_cut(), unit = bound / kUnits;
  const std::size_t trees_max = std::max(kTreesAlways, 2 * topology.links().size());
  std::vector<Link> links = topology.links();  // in whole units, so that a tree of width 1 always exists
  for (Link& link : links) link.bandwidth = std::floor(std::min(link.bandwidth, bound) / unit);
  const Topology whole(topology.nodes(), links);
  Growth growth(whole);
  std::vector<PackedTree> trees;
  double left = whole.min_cut();
  const double enough = left - kWantedShare * kUnits;
  for (double width = left; left > std::max(0.0, enough) && trees.size() < trees_max;) {
    width = std::min(width, growth.widest());
    Tree tree = growth.grow(width, left);
    if (tree.empty()) {
      if (width <= 1) break;
      width = std::floor(width * kNarrower);
      continue;
    }
    left -= width;
    trees.push_back({std::move(tree), width * unit});
    width = left;
  }
  return trees;
}

}  // namespace param_sync::schedule
