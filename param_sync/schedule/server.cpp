#include "param_sync/schedule/builder.hpp"
#include "param_sync/schedule/consistent_hash.hpp"

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

constexpr int kBytePsWaves = 8;

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

/// The i-th range of each owner. The ranges of a wave are pushed, summed and pulled together.
using Wave = std::vector<Owned>;

// Pushes and pulls have separate lanes and channels, so that a wave can be pulled while the next one is pushed.
constexpr int kPushLane = 0, kSumLane = 1, kPublishLane = 2, kPullLane = 3;
constexpr int kPushChannel = 0, kPullChannel = 1;
// With credits, grants have a lane and a channel of their own, and pushes have a lane for each owner. So a worker that
// has one owner's credit can push while it still waits for another owner's credit.
constexpr int kGrantLane = 4, kGrantedLanes = 5;
constexpr int kGrantChannel = 2;

/// Lets workers push: all at once, or, with `credits`, so many at a time to each owner, in the order in which it adds.
/// When an owner has added a push, it grants the credit of that push to the next one.
class Pushes {
 public:
  Pushes(Builder& builder, int ranks, int credits)
      : builder_(builder), credits_(static_cast<std::size_t>(credits)), taken_(static_cast<std::size_t>(ranks)) {}

  void push(const Owned& owned, int worker, int sum_lane, Take take) {
    const int owner = owned.owner;
    int lane = kPushLane;
    std::vector<OpRef>& taken = taken_[static_cast<std::size_t>(owner)];
    if (credits_ != 0) {
      const auto ranks = static_cast<int>(taken_.size());
      lane = kGrantedLanes + (worker - owner + ranks) % ranks;
      std::vector<OpRef> before;
      if (taken.size() >= credits_) before.push_back(taken[taken.size() - credits_]);
      builder_.signal(owner, kGrantLane, worker, owned.range, kGrantChannel, before);
      builder_.await_signal(worker, lane, owner, owned.range, kGrantChannel);
    }
    builder_.send(worker, lane, owner, owned.range, kPushChannel);
    const OpRef taking = builder_.receive(owner, sum_lane, worker, owned.range, take, kPushChannel);
    if (owned.range.count() > 0) taken.push_back(taking);
  }

 private:
  Builder& builder_;
  std::size_t credits_;                    // 0: no limit
  std::vector<std::vector<OpRef>> taken_;  // by owner: the ops that add pushes
};

/// Calls `call` with each range of the wave and each worker except its owner, in the order of the distance between the
/// two. So each rank begins with a different peer.
template <class Call>
void for_each_pair(const Wave& wave, int workers, int ranks, Call call) {
  for (int distance = 1; distance < ranks; ++distance) {
    for (const Owned& owned : wave) {
      const int worker = (owned.owner + distance) % ranks;
      if (worker < workers) call(owned, worker);
    }
  }
}

void push_and_pull(Builder& builder, const std::vector<Wave>& waves, int workers, int ranks, bool applies,
                   int credits) {
  Pushes pushes(builder, ranks, credits);
  for (const Wave& wave : waves) {
    std::vector<bool> has_data(static_cast<std::size_t>(ranks));  // a summation node copies what arrives first
    std::fill_n(has_data.begin(), workers, true);
    for_each_pair(wave, workers, ranks, [&](const Owned& owned, int worker) {
      const Take take = has_data[static_cast<std::size_t>(owned.owner)] ? Take::reduce : Take::copy;
      pushes.push(owned, worker, kSumLane, take);
      has_data[static_cast<std::size_t>(owned.owner)] = true;
    });
    for (const Owned& owned : wave) {
      if (applies) builder.apply(owned.owner, kSumLane, owned.range);
    }
    for_each_pair(wave, workers, ranks, [&](const Owned& owned, int worker) {
      builder.send(owned.owner, kPublishLane, worker, owned.range, kPullChannel);
      builder.receive(worker, kPullLane, owned.owner, owned.range, Take::copy, kPullChannel);
    });
  }
}

/// The shares of the chunks that each worker, and each summation node, sums at best.
struct ByteShares {
  double worker = 0;
  double summation_node = 0;
};

ByteShares byteps_shares(int workers, int summation_nodes) {
  const double n = workers, k = summation_nodes;
  const double whole = n * n + k * n - 2 * k;
  if (workers == 1) return {1, 0};  // nothing to sum
  return {(n - k) / whole, 2 * (n - 1) / whole};
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

/// A parameter server whose owners are the nodes themselves. Workers send gradients to the owners, which sum them,
/// apply the optimizer and send the weights back. Consistent hashing shares the chunks out (consistent_hash.hpp). An
/// owner serves its ranges one by one: it sends one back while it receives the next. `credits`: see Request.
Schedule parameter_server(int nodes, int chunks, int credits) {
  Builder builder("ps", nodes, chunks, Result::parameter_server);
  const std::vector<Owned> ranges = owned_ranges(nodes, chunks);
  std::vector<Wave> waves;
  std::vector<std::size_t> ranges_of(static_cast<std::size_t>(nodes));
  for (const Owned& owned : ranges) {
    const std::size_t wave = ranges_of[static_cast<std::size_t>(owned.owner)]++;
    if (wave == waves.size()) waves.emplace_back();
    waves[wave].push_back(owned);
  }
  push_and_pull(builder, waves, nodes, nodes, true, credits);
  return std::move(builder).finish();
}

/// A parameter server whose owners have one part each, all of the same size. An owner sums, applies the optimizer and
/// sends the weights back in one lane, so that a node needs three lanes in all. `credits`: see Request.
Schedule even_parameter_server(int nodes, int chunks, int credits) {
  constexpr int kServe = kSumLane, kPull = kPullLane;  // lanes, in addition to those that push
  Builder builder("ps:even", nodes, chunks, Result::parameter_server);
  Wave wave;
  for (int owner = 0; owner < nodes; ++owner) wave.push_back({owner, part_of({0, chunks}, owner, nodes)});
  Pushes pushes(builder, nodes, credits);
  for_each_pair(wave, nodes, nodes,
                [&](const Owned& owned, int worker) { pushes.push(owned, worker, kServe, Take::reduce); });
  for (const Owned& owned : wave) builder.apply(owned.owner, kServe, owned.range);
  for_each_pair(wave, nodes, nodes, [&](const Owned& owned, int worker) {
    builder.send(owned.owner, kServe, worker, owned.range, kPullChannel);
    builder.receive(worker, kPull, owned.owner, owned.range, Take::copy, kPullChannel);
  });
  return std::move(builder).finish();
}

/// Workers and extra summation nodes share the summing so that all send equally much (Jiang et al., OSDI 2020,
/// section 4). There are at most as many summation nodes as workers; their ranks come after the workers'.
Schedule byteps(int workers, int chunks, int summation_nodes) {
  const int ranks = workers + summation_nodes;
  Builder builder("byteps", ranks, chunks);
  builder.set_workers(workers);
  const ByteShares shares = byteps_shares(workers, summation_nodes);
  std::vector<Wave> waves(kBytePsWaves);
  double share_end = 0;
  Range range;
  for (int owner = 0; owner < ranks; ++owner) {
    share_end += owner < workers ? shares.worker : shares.summation_node;
    range = {range.end, owner == ranks - 1 ? chunks : static_cast<int>(share_end * chunks + 0.5)};
    for (int wave = 0; wave < kBytePsWaves; ++wave) {
      waves[static_cast<std::size_t>(wave)].push_back({owner, part_of(range, wave, kBytePsWaves)});
    }
  }
  push_and_pull(builder, waves, workers, ranks, false, 0);
  return std::move(builder).finish();
}

}  // namespace param_sync::schedule
