// Weights that ranks pass on to each other: who has them from whom, and how old they are.
#include "param_sync/pull_by_tree.cuh"
#include "tests/unit/store/stores.cuh"

namespace store_test {
namespace {

using param_sync::store::Tree;

constexpr int kRanksMax = 64;
constexpr int kReads = 12;
constexpr std::uint64_t kLongRange = 40'000;  // more than a ring has room for

TEST(Trees, HaveEachRankOnceAndAreNoDeeperThanTheySay) {
  for (int ranks = 1; ranks <= kRanksMax; ++ranks) {
    for (std::uint64_t depth = 1; depth <= 16; ++depth) {
      const Tree tree = Tree::of_depth(ranks, depth);
      SCOPED_TRACE(std::to_string(ranks) + " ranks, depth " + std::to_string(depth));
      std::vector<int> children(kRanksMax);
      for (int owner = 0; owner < ranks; ++owner) {
        std::vector<int> of_tree(kRanksMax);
        EXPECT_EQ(tree.parent_of(owner, owner), -1);
        for (int rank = 0; rank < ranks; ++rank) {
          const int level = tree.level_of(owner, rank);
          ASSERT_LE(level, static_cast<int>(depth));
          ASSERT_EQ(tree.rank_at(owner, tree.place_of(owner, rank)), rank);
          if (rank == owner) continue;
          const int parent = tree.parent_of(owner, rank);
          ASSERT_EQ(tree.level_of(owner, parent), level - 1);
          ASSERT_LE(++of_tree[static_cast<std::size_t>(parent)], tree.fanout);
          ++children[static_cast<std::size_t>(parent)];
        }
      }
      for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(children[static_cast<std::size_t>(rank)], ranks - 1);
      if (tree.fanout > 1) {
        const Tree narrower{ranks, tree.fanout - 1};
        EXPECT_GT(narrower.level_of(0, ranks - 1), static_cast<int>(depth));
      }
    }
  }
}

struct TreeJob {
  StoreHandle store;
  unsigned ranges = 1;
  int steps = kReads;
  const std::uint64_t* floats = nullptr;  ///< by range
  float* weights = nullptr;               ///< two versions of all ranges
  std::uint64_t all = 0;                  ///< floats of a version
  float* ones = nullptr;
  float* read = nullptr;          ///< mapped: by step and range, the first and the last float that was read
  std::uint64_t* seen = nullptr;  ///< mapped: by step and range, of rank 0
  std::uint64_t* of_ranks = nullptr;
  int* result = nullptr;  ///< mapped
};

__global__ void push_and_read(TreeJob job) {
  const auto block = gpusock::this_block();
  const auto deadline = gpusock::Deadline::after_ns(gpusock::kPatienceNs);
  int error = 0;
  for (int step = 0; step < job.steps && error == 0; ++step) {
    std::uint64_t begin = 0;
    for (unsigned range = 0; range < job.ranges && error == 0; begin += job.floats[range++]) {
      float* const before = job.weights + step % 2 * job.all + begin;
      float* const weights = job.weights + (step + 1) % 2 * job.all + begin;
      error = param_sync::push(block, job.store, range, job.ones, deadline);
      if (error == 0) {
        error = param_sync::pull_by_tree(block, job.store, range, before, weights, job.of_ranks, deadline);
      }
      const auto at = static_cast<unsigned>(step) * job.ranges + range;
      if (threadIdx.x == 0) {
        job.read[2 * at] = weights[0];
        job.read[2 * at + 1] = weights[job.floats[range] - 1];
        job.seen[at] = job.of_ranks[0];
      }
      __syncthreads();
    }
  }
  if (threadIdx.x == 0) *job.result = error;
}

/// What the kernel of a rank uses.
struct TreeRank {
  explicit TreeRank(Rank& of, const Weights& initial)
      : rank(of),
        weights(of.context, 2 * of.all),
        ones(of.context, kLongRange),
        read(of.context, 2 * kReads * initial.size()),
        seen(of.context, kReads * initial.size()),
        of_ranks(of.context, kRanks) {
    std::vector<float> all;
    for (const auto& range : initial) all.insert(all.end(), range.begin(), range.end());
    for (const std::size_t version : {0, 1}) weights.copy_in(all, version * of.all);
    ones.copy_in(std::vector<float>(kLongRange, 1));
  }

  void launch(int steps = kReads) {
    const TreeJob job{.store = rank.job.store,
                      .ranges = rank.job.ranges,
                      .steps = steps,
                      .floats = rank.job.floats,
                      .weights = weights.data(),
                      .all = rank.all,
                      .ones = ones.data(),
                      .read = read.data(),
                      .seen = seen.data(),
                      .of_ranks = of_ranks.data(),
                      .result = rank.job.result};
    gpusock::launch(rank.context, {.block = 2, .stream = &rank.stream}, push_and_read, job);
  }

  Rank& rank;
  gpusock::DeviceBuffer<float> weights, ones;
  gpusock::Mapped<float> read;
  gpusock::Mapped<std::uint64_t> seen;
  gpusock::DeviceBuffer<std::uint64_t> of_ranks;
};

/// By tree a read is exactly as old as the rank's place is deep: no older, and no newer.
TEST(Trees, PassOnWeightsOfTheirLevel) {
  const Weights initial{std::vector<float>(kLongRange, 5), {5, 5}, {5}, std::vector<float>(1000, 5)};
  for (const std::uint64_t depth : {1, 2}) {
    Stores stores({.tree_depth = depth, .history_events = 2 * kReads * 4}, initial);
    const Tree tree = Tree::of_depth(kRanks, depth);
    std::vector<std::unique_ptr<TreeRank>> ranks;
    for (int rank = 0; rank < kRanks; ++rank) ranks.push_back(std::make_unique<TreeRank>(stores[rank], initial));
    for (const auto& rank : ranks) rank->launch();
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(stores[rank].wait(), 0) << failure_of(stores[rank]);
      const TreeRank& of = *ranks[static_cast<std::size_t>(rank)];
      for (std::size_t range = 0; range < initial.size(); ++range) {
        const int lag = tree.lag_of(stores[rank].store->owner(range), rank);
        for (int step = 0; step < kReads; ++step) {
          const std::size_t at = static_cast<std::size_t>(step) * initial.size() + range;
          const int version = std::max(0, step + 2 - lag);  // after so many pushes, and one
          EXPECT_EQ(of.seen[at], static_cast<std::uint64_t>(version));
          EXPECT_EQ(of.read[2 * at], static_cast<float>(5 + version * kRanks)) << "range " << range;
          EXPECT_EQ(of.read[2 * at + 1], static_cast<float>(5 + version * kRanks)) << "range " << range;
        }
      }
      std::size_t reads = 0;
      for (const StoreEvent& event : stores[rank].store->history()) reads += event.is_push ? 0 : 1;
      EXPECT_EQ(reads, kReads * initial.size());
    }
  }
}

/// An owner sends its weights to its children alone: the others' reads are passed on.
TEST(Trees, SpareTheOwner) {
  const Weights initial{std::vector<float>(kLongRange, 5)};
  Stores stores({.tree_depth = 2}, initial);
  std::vector<std::unique_ptr<TreeRank>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) ranks.push_back(std::make_unique<TreeRank>(stores[rank], initial));
  for (const auto& rank : ranks) rank->launch();
  std::vector<std::uint64_t> asked;
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_EQ(stores[rank].wait(), 0) << failure_of(stores[rank]);
    asked.push_back(stores[rank].store->traffic()[0].asked_bytes);
  }
  EXPECT_EQ(asked[0], asked[1]);
  EXPECT_GT(asked[0], 0);
  EXPECT_EQ(asked[2], 0) << "rank 1 passes the weights on to rank 2";
}

TEST(Trees, NameARankThatIsLost) {
  const Weights initial{std::vector<float>(kLongRange, 5)};
  for (const int lost : {1, 2}) {
    Stores stores({.tree_depth = 2}, initial);
    ASSERT_EQ(stores[0].store->owner(0), 0);
    std::vector<std::unique_ptr<TreeRank>> ranks;
    for (int rank = 0; rank < kRanks; ++rank) ranks.push_back(std::make_unique<TreeRank>(stores[rank], initial));
    for (int rank = 0; rank < kRanks; ++rank) ranks[static_cast<std::size_t>(rank)]->launch(rank == lost ? 3 : kReads);
    EXPECT_EQ(stores[lost].wait(), 0);
    stores[lost].store.reset();
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == lost) continue;
      EXPECT_NE(stores[rank].wait(), 0);
      EXPECT_NE(failure_of(stores[rank]).find("lost rank " + std::to_string(lost)), std::string::npos)
          << failure_of(stores[rank]);
    }
  }
}

TEST(Trees, WithOtherClocksOrFormatsAreRefused) {
  Groups groups(1);
  const auto said = [&](const StoreOptions& options) {
    return error_of<gpusock::Error>([&] { const Store store(groups.group(0), Weights{{0}}, options); });
  };
  EXPECT_NE(said({.clock = Ssp{1}, .tree_depth = 2}).find("a tree with another clock than bsp"), std::string::npos);
  EXPECT_NE(said({.pull_format = param_sync::WireFormat::int8, .tree_depth = 2}).find("a tree, and a pull_format"),
            std::string::npos);
}

__global__ void read_by_tree(StoreHandle store, float* floats, int* result) {
  *result = param_sync::pull_by_tree(gpusock::this_thread(), store, 0, floats, floats);
}

TEST(Trees, MustBeThere) {
  Stores stores({}, {{0}});
  gpusock::launch(stores[0].context, {.stream = &stores[0].stream}, read_by_tree, stores[0].job.store,
                  stores[0].job.weights, stores[0].job.result);
  EXPECT_EQ(stores[0].wait(), -EINVAL);
}

}  // namespace
}  // namespace store_test
