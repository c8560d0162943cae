#include "param_sync/schedule/packing.hpp"

#include <algorithm>
#include <numeric>

namespace param_sync::schedule {
namespace {

constexpr int kSpreadLanes = 8;                  // lanes for the results of one tree at one rank
constexpr std::size_t kTreesWithManyLanes = 64;  // more trees have one each: a rank has at most kLanesMax lanes

/// Gives each tree chunks by its share of the bandwidth, rounded down. The rest goes to trees that rounding cut most.
std::vector<int> share_out(const std::vector<PackedTree>& trees, int chunks) {
  double all = 0;
  for (const PackedTree& packed : trees) all += packed.bandwidth;
  std::vector<int> shares;
  std::vector<std::pair<double, std::size_t>> missing;
  for (std::size_t i = 0; i < trees.size(); ++i) {
    const double share = all > 0 ? chunks * trees[i].bandwidth / all : chunks;
    shares.push_back(static_cast<int>(share));
    missing.emplace_back(share - shares.back(), i);
  }
  std::stable_sort(missing.begin(), missing.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  int left = chunks - std::accumulate(shares.begin(), shares.end(), 0);
  for (std::size_t i = 0; left > 0; i = (i + 1) % missing.size(), --left) ++shares[missing[i].second];
  return shares;
}

}  // namespace

/// Spanning trees that are packed onto the topology's links, each with its share of the chunks (Wang et al., MLSys
/// 2020).
Schedule blink(const Topology& topology, int chunks) {
  Builder builder("blink", topology.nodes(), chunks);
  const std::vector<PackedTree> trees = pack_trees(topology);
  const std::vector<int> shares = share_out(trees, chunks);
  // Each child has a lane, since it has a link of its own: with one lane for two, each link is idle half of the time.
  const int spread_lanes = trees.size() > kTreesWithManyLanes ? 1 : kSpreadLanes;
  int begin = 0, channel = 0;
  for (std::size_t i = 0; i < trees.size(); ++i) {
    if (shares[i] == 0) continue;
    const int lane = channel * (1 + spread_lanes);
    reduce_and_broadcast(builder, trees[i].tree, {begin, begin + shares[i]}, lane, channel++, spread_lanes);
    begin += shares[i];
  }
  return std::move(builder).finish();
}

}  // namespace param_sync::schedule
