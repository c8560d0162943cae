#include "schedule/builder.hpp"
#include "schedule/consistent_hash.hpp"
#include "schedule/generators.hpp"

#include <algorithm>
#include <numeric>

namespace param_sync::schedule {
namespace {

/// A well-mixed number. (splitmix64, Steele, Lea and Flood, 2014.)
std::uint64_t mixed(std::uint64_t number) {
  number += 0x9e3779b97f4a7c15;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

struct Owned {
  int owner = 0;
  Range range;
};

/// Ranges of chunks with one owner each, from the first chunk to the last.
std::vector<Owned> owned_ranges(int nodes, int chunks) {
  std::vector<int> ranks(static_cast<std::size_t>(nodes));
  std::iota(ranks.begin(), ranks.end(), 0);
  const ConsistentHash hash(ranks);
  std::vector<Owned> all;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int owner = hash.owner(position_of(chunk, chunks));
    if (all.empty() || all.back().owner != owner) all.push_back({owner, {chunk, chunk}});
    all.back().range.end = chunk + 1;
  }
  return all;
}

/// All workers' parts go to the owners, and back. Owners are visited at growing distance: so nobody is everybody's
/// next.
void push(Builder& builder, const std::vector<Owned>& ranges, int nodes) {
  for (int distance = 1; distance < nodes; ++distance) {
    for (const Owned& owned : ranges) {
      builder.transfer((owned.owner + distance) % nodes, owned.owner, owned.range, Take::reduce);
    }
  }
}

void pull(Builder& builder, const std::vector<Owned>& ranges, int nodes) {
  for (int distance = 1; distance < nodes; ++distance) {
    for (const Owned& owned : ranges) {
      builder.transfer(owned.owner, (owned.owner + distance) % nodes, owned.range, Take::copy);
    }
  }
}

}  // namespace

ConsistentHash::ConsistentHash(const std::vector<int>& nodes) {
  for (const int node : nodes) {
    for (int point = 0; point < kPointsOfNode; ++point) {
      const std::uint64_t key = static_cast<std::uint64_t>(node) << 32 | static_cast<std::uint64_t>(point);
      points_.emplace_back(mixed(mixed(key)), node);
    }
  }
  std::sort(points_.begin(), points_.end());
}

int ConsistentHash::owner(std::uint64_t position) const {
  const auto next = std::lower_bound(points_.begin(), points_.end(), std::pair<std::uint64_t, int>{position, 0});
  return (next == points_.end() ? points_.front() : *next).second;
}

std::uint64_t position_of(int chunk, int chunks) {
  return ~std::uint64_t{0} / static_cast<std::uint64_t>(chunks) * static_cast<std::uint64_t>(chunk);
}

Schedule parameter_server(int nodes, int chunks) {
  Builder builder("ps", nodes, chunks, Result::parameter_server);
  const std::vector<Owned> ranges = owned_ranges(nodes, chunks);
  push(builder, ranges, nodes);
  for (const Owned& owned : ranges) builder.apply(owned.owner, Builder::kReceiveLane, owned.range);
  pull(builder, ranges, nodes);
  return std::move(builder).finish();
}

ByteShares byteps_shares(int workers, int summation_nodes) {
  const double n = workers, k = summation_nodes;
  const double whole = n * n + k * n - 2 * k;
  if (workers == 1) return {1, 0};  // nothing to sum
  return {(n - k) / whole, 2 * (n - 1) / whole};
}

Schedule byteps(int workers, int chunks, int summation_nodes) {
  const int ranks = workers + summation_nodes;
  Builder builder("byteps", ranks, chunks);
  builder.set_workers(workers);
  const ByteShares shares = byteps_shares(workers, summation_nodes);
  std::vector<Owned> ranges;
  double end = 0;
  for (int owner = 0; owner < ranks; ++owner) {
    const int begin = ranges.empty() ? 0 : ranges.back().range.end;
    end += owner < workers ? shares.worker : shares.summation_node;
    ranges.push_back({owner, {begin, owner == ranks - 1 ? chunks : static_cast<int>(end * chunks + 0.5)}});
  }
  std::vector<bool> has_data(static_cast<std::size_t>(ranks));  // summation nodes keep what comes first
  std::fill_n(has_data.begin(), workers, true);
  for (int distance = 1; distance <= ranks; ++distance) {
    for (int worker = 0; worker < workers; ++worker) {
      const Owned& owned = ranges[static_cast<std::size_t>((worker + distance) % ranks)];
      if (owned.owner == worker) continue;
      const bool adds = has_data[static_cast<std::size_t>(owned.owner)];
      builder.transfer(worker, owned.owner, owned.range, adds ? Take::reduce : Take::copy);
      has_data[static_cast<std::size_t>(owned.owner)] = true;
    }
  }
  for (int distance = 1; distance <= ranks; ++distance) {
    for (const Owned& owned : ranges) {
      const int worker = (owned.owner + distance) % ranks;
      if (worker < workers && worker != owned.owner) builder.transfer(owned.owner, worker, owned.range, Take::copy);
    }
  }
  return std::move(builder).finish();
}

}  // namespace param_sync::schedule
