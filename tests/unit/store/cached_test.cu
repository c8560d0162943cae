// Ranges that stay on the device of a rank that has pulled them.
#include "param_sync/cached_range.cuh"
#include "tests/unit/store/stores.cuh"

#include <numeric>

namespace store_test {
namespace {

using param_sync::AnyClock;
using param_sync::CachedRange;
using param_sync::CachedVersion;

constexpr std::size_t kFloats = 1'001;
constexpr std::uint64_t kAnswerBytes = 24 + kRanks * 8 + kFloats * 4;

/// What a kernel with a cache does.
struct CachedJob {
  Job job;
  CachedRange cache;
  float* read = nullptr;     ///< of each step: the first weight and the last one
  bool reads_only = false;   ///< it pushes nothing
  bool pushes_only = false;  ///< it reads nothing
};

template <class Group>
__device__ int step_cached(const Group& group, const CachedJob& cached, int step) {
  const Job& job = cached.job;
  const auto deadline = gpusock::Deadline::after_ns(job.timeout_ns);
  const int error = cached.pushes_only ? 0 : param_sync::pull_cached(group, job.store, 0, cached.cache, deadline);
  if (error != 0) return error;
  if (!cached.pushes_only && group.thread_rank() == 0) {
    cached.read[2 * step] = cached.cache.weights[0];
    cached.read[2 * step + 1] = cached.cache.weights[job.floats[0] - 1];
  }
  if (cached.reads_only) return 0;
  for (std::uint64_t i = group.thread_rank(); i < job.floats[0]; i += group.size()) {
    job.gradients[i] = job.adds_ones ? 1.0f : gradient_of(job.rank, step, i, cached.cache.weights[i]);
  }
  group.sync();
  return param_sync::push_cached(group, job.store, 0, job.gradients, cached.cache, deadline);
}

__global__ void train_cached(CachedJob cached, int first, int steps) {
  int error = 0;
  for (int step = first; step < first + steps && error == 0; ++step) {
    __nanosleep(cached.job.pause_ns);
    error = step_cached(gpusock::this_block(), cached, step);
  }
  if (threadIdx.x == 0) *cached.job.result = error;
}

__global__ void train_by_one_thread(CachedJob cached, int first, int steps) {
  int error = 0;
  for (int step = first; step < first + steps && error == 0; ++step) {
    error = step_cached(gpusock::this_thread(), cached, step);
  }
  *cached.job.result = error;
}

/// A rank's cache of range 0.
class Cache {
 public:
  static constexpr int kStepsMax = 64;

  explicit Cache(Rank& rank, std::uint64_t pushes_max = 0, bool has_velocities = false) : rank_(rank) {
    cached_.job = rank.job;
    cached_.cache = {weights_.data(), version_.data(), has_velocities ? velocities_.data() : nullptr, pushes_max};
    cached_.read = read_.data();
  }

  /// Starts these steps, after all that were started before.
  void start(int steps, decltype(&train_cached) kernel = train_cached) {
    ASSERT_LE(steps_ + steps, kStepsMax);
    gpusock::launch(rank_.context, {.block = kernel == train_cached ? 3u : 1u, .stream = &rank_.stream}, kernel,
                    cached_, steps_, steps);
    steps_ += steps;
  }
  int run(int steps) {
    start(steps);
    return rank_.wait();
  }
  CachedJob& job() { return cached_; }
  std::uint64_t pulls() const {
    std::vector<CachedVersion> version(1);
    version_.copy_out(version);
    return version[0].pulls;
  }
  std::vector<float> weights() const { return copy_of(weights_); }
  /// Of each step, the first weight and the last one.
  std::vector<float> read() const { return copy_of(read_); }

 private:
  static std::vector<float> copy_of(const gpusock::DeviceBuffer<float>& buffer) {
    std::vector<float> all(buffer.size());
    buffer.copy_out(all);
    return all;
  }

  Rank& rank_;
  CachedJob cached_;
  gpusock::DeviceBuffer<float> weights_{rank_.context, kFloats}, velocities_{rank_.context, kFloats};
  gpusock::DeviceBuffer<float> read_{rank_.context, 2 * kStepsMax};
  gpusock::DeviceBuffer<CachedVersion> version_{rank_.context, 1};
  int steps_ = 0;
};

const Weights kZero{std::vector<float>(kFloats)};

/// What is wrong with the reads of a history of rank `own`, of so many steps, if it has kept Ssp.
std::string objection(const std::vector<StoreEvent>& history, int own, std::uint64_t staleness) {
  std::vector<std::uint64_t> before(kRanks);
  for (const StoreEvent& event : history) {
    if (event.is_push) continue;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const bool is_own = rank == static_cast<std::size_t>(own);
      if (is_own && event.seen[rank] != event.clock) return "an own push is missing";
      if (!is_own && event.seen[rank] + staleness < event.clock) return "too stale";
      if (event.seen[rank] < before[rank]) return "a push is gone";
      if (!is_own && event.is_cached && event.seen[rank] != before[rank]) return "not what was pulled";
    }
    before = event.seen;
  }
  return "";
}

std::size_t cached_reads(const std::vector<StoreEvent>& history) {
  return static_cast<std::size_t>(
      std::count_if(history.begin(), history.end(), [](const StoreEvent& event) { return event.is_cached; }));
}

/// Peers push at the same pace, one after the other: so it is certain which pushes a pull finds.
TEST(Cached, WithPeersOfOnePaceOneReadOfSPlusOneIsAPull) {
  for (const std::uint64_t staleness : {std::uint64_t{1}, std::uint64_t{3}}) {
    Stores stores({.clock = Ssp{staleness}, .history_events = 200}, kZero);
    Cache cache(stores[1]);
    const int pulls = 4, steps = pulls * static_cast<int>(staleness + 1);
    cache.job().job.adds_ones = true;
    for (int step = 0; step < steps; ++step) {
      ASSERT_EQ(cache.run(1), 0);
      for (const int peer : {0, 2}) {
        stores[peer].job.adds_ones = true;
        stores[peer].train(1);
        ASSERT_EQ(stores[peer].wait(), 0);
        stores[peer].weights_now();  // the owner has then applied its push
      }
    }
    EXPECT_EQ(cache.pulls(), pulls);
    EXPECT_EQ(stores[1].store->traffic()[0].pulled_bytes, pulls * kAnswerBytes);
    EXPECT_EQ(stores[0].store->traffic()[0].pulled_bytes, 2 * static_cast<unsigned>(steps) * kAnswerBytes);
    const std::vector<StoreEvent> history = stores[1].store->history();
    EXPECT_EQ(cached_reads(history), steps - pulls);
    EXPECT_EQ(objection(history, 1, staleness), "");
    EXPECT_EQ(objection(history, 1, staleness - 1), "too stale") << "it is as stale as it may be";
    const std::vector<float> read = cache.read();
    std::size_t reads = 0;
    for (const StoreEvent& event : history) {
      if (event.is_push) continue;
      const auto sum = static_cast<float>(std::accumulate(event.seen.begin(), event.seen.end(), std::uint64_t{0}));
      EXPECT_EQ(event.clock, reads);
      EXPECT_EQ(read[2 * reads], sum) << "each push has added 1";
      EXPECT_EQ(read[2 * reads + 1], sum);
      ++reads;
    }
    EXPECT_EQ(reads, steps);
  }
}

/// All ranks at once, with the pace of their threads.
TEST(Cached, EveryReadIsAsTheClockAllows) {
  constexpr int kSteps = 50;
  for (const std::uint64_t staleness : {std::uint64_t{1}, std::uint64_t{4}}) {
    Stores stores({.clock = Ssp{staleness}, .history_events = 200}, kZero);
    std::vector<std::unique_ptr<Cache>> caches;
    for (int rank = 0; rank < kRanks; ++rank) {
      caches.push_back(std::make_unique<Cache>(stores[rank]));
      caches.back()->job().job.adds_ones = true;
      caches.back()->job().job.pause_ns = static_cast<unsigned>(rank) * 50'000;
      caches.back()->start(kSteps, rank == 1 ? train_by_one_thread : train_cached);
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(stores[rank].wait(), 0);
      const std::vector<StoreEvent> history = stores[rank].store->history();
      ASSERT_EQ(history.size(), 2 * kSteps);
      EXPECT_EQ(objection(history, rank, staleness), "");
      const std::uint64_t pulls = caches[static_cast<std::size_t>(rank)]->pulls();
      EXPECT_EQ(stores[rank].store->traffic()[0].pulled_bytes, pulls * kAnswerBytes);
      EXPECT_EQ(pulls + cached_reads(history), kSteps);
      const std::vector<float> read = caches[static_cast<std::size_t>(rank)]->read();
      std::size_t step = 0;
      for (const StoreEvent& event : history) {
        if (event.is_push) continue;
        const auto least = static_cast<float>(std::accumulate(event.seen.begin(), event.seen.end(), std::uint64_t{0}));
        EXPECT_GE(read[2 * step], least);
        EXPECT_GE(read[2 * step + 1], least);
        ++step;
      }
    }
    EXPECT_GT(cached_reads(stores[2].store->history()), 0) << "the slowest rank is never too far ahead";
    stores.meet();
    EXPECT_EQ(stores[0].weights_now(), std::vector<float>(kFloats, kRanks * kSteps));
  }
}

TEST(Cached, WithBspItIsTheStoreWithoutACacheBitForBit) {
  constexpr int kSteps = 7;
  const StoreOptions options{.clock = Bsp(), .update = Update::sgd(0.05f, 0.9f), .history_events = 100};
  std::vector<float> expected;
  for (const bool has_cache : {false, true}) {
    Stores stores(options, kZero);
    std::vector<std::unique_ptr<Cache>> caches;
    for (int rank = 0; rank < kRanks; ++rank) {
      caches.push_back(std::make_unique<Cache>(stores[rank]));
      if (has_cache) {
        caches.back()->start(kSteps);
      } else {
        stores[rank].train(kSteps);
      }
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(stores[rank].wait(), 0);
      EXPECT_EQ(stores[rank].store->traffic()[0].pulled_bytes, kSteps * kAnswerBytes) << "each read follows a push";
    }
    for (int rank = 0; has_cache && rank < kRanks; ++rank) {
      Cache& cache = *caches[static_cast<std::size_t>(rank)];
      cache.job().reads_only = true;
      ASSERT_EQ(cache.run(3), 0);
      EXPECT_EQ(cache.pulls(), kSteps + 1) << "only the first read follows a push";
      EXPECT_EQ(objection(stores[rank].store->history(), rank, 0), "");
      EXPECT_EQ(cache.weights(), expected);
    }
    expected = stores[0].weights_now();
  }
}

/// One rank alone pushes: so the owner has what this rank computes.
TEST(Cached, OwnPushesAreSeenAtOnce) {
  constexpr int kSteps = 20;
  for (const Update& update : {Update::add(), Update::sgd(0.05f), Update::sgd(0.05f, 0.9f),
                               Update::proximal(0.05f, 0.3f), Update::nesterov_sgd(0.05f, 0.9f, 0.5f)}) {
    for (const AnyClock& clock : {AnyClock(Ssp{kSteps}), AnyClock(Async())}) {
      Stores stores({.clock = clock, .update = update}, kZero);
      Cache cache(stores[2], std::holds_alternative<Async>(clock) ? kSteps + 1 : 0, update.momentum != 0);
      ASSERT_EQ(cache.run(kSteps), 0);
      EXPECT_EQ(cache.pulls(), 1);
      EXPECT_EQ(cache.weights(), stores[2].weights_now());
      EXPECT_NE(cache.weights(), kZero[0]);
    }
  }
}

TEST(Cached, AfterAPushByAnotherCallTheOwnerIsAsked) {
  Stores stores({.clock = Ssp{9}}, kZero);
  Cache cache(stores[1]);
  cache.job().job.adds_ones = stores[1].job.adds_ones = true;
  ASSERT_EQ(cache.run(2), 0);
  EXPECT_EQ(cache.pulls(), 1);
  stores[1].job.only_pushes = true;
  for (const bool pushes_first : {false, true}) {
    stores[1].train(1);
    ASSERT_EQ(stores[1].wait(), 0);
    cache.job().pushes_only = pushes_first;  // a push of the cache does not make up for the one that it misses
    ASSERT_EQ(cache.run(pushes_first ? 1 : 0), 0);
    cache.job().pushes_only = false;
    ASSERT_EQ(cache.run(2), 0);
  }
  EXPECT_EQ(cache.pulls(), 3);
  EXPECT_EQ(cache.weights(), std::vector<float>(kFloats, 9));
  const std::vector<float> read = cache.read();
  EXPECT_EQ(std::vector<float>({read[0], read[2], read[4], read[6], read[10], read[12]}),
            std::vector<float>({0, 1, 3, 4, 7, 8}));
}

TEST(Cached, HistoriesSayWhichReadsWereCached) {
  StoreEvent read;
  read.clock = 3;
  read.end = 10;
  read.seen = {3, 1};
  read.is_cached = true;
  EXPECT_EQ(param_sync::to_json_lines(0, std::vector{read}),
            "{\"worker\": 0, \"op\": \"read\", \"clock\": 3, \"keys\": [0, 10], \"seen\": [3, 1], \"cached\": true}\n");
}

TEST(Cached, WithAsyncTheProgramSaysHowLong) {
  Stores stores({.clock = Async()}, kZero);
  Cache unbounded(stores[0]), cache(stores[1], 3);
  EXPECT_EQ(unbounded.run(1), -EINVAL);
  ASSERT_EQ(cache.run(7), 0);
  EXPECT_EQ(cache.pulls(), 3) << "before the first push, the fourth and the seventh one";
  Stores bounded({.clock = Ssp{9}}, kZero);
  Cache newer(bounded[1], 3);
  ASSERT_EQ(newer.run(7), 0);
  EXPECT_EQ(newer.pulls(), 3) << "the clock would allow more";
}

/// With nothing pushed, and the store goes on.
TEST(Cached, WhatARankCannotComputeIsRefused) {
  const Update sgd = Update::sgd(1.0f), momentum = Update::sgd(1.0f, 0.5f);
  for (const StoreOptions& options :
       {StoreOptions{.clock = Ssp{2}, .update = sgd, .correction = {.divides_by_lag = true}},
        StoreOptions{.clock = Ssp{2}, .update = sgd, .correction = {.compensation = 1}},
        StoreOptions{.clock = Ssp{2}, .update = momentum}}) {
    Stores stores(options, kZero);
    Cache cache(stores[1]);
    EXPECT_EQ(cache.run(1), -EINVAL);
    stores[1].store->check();
    EXPECT_EQ(stores[1].store->traffic()[0].pushed_bytes, 0);
  }
  Stores stores({.clock = Ssp{2}, .update = momentum}, kZero);
  Cache cache(stores[1], 0, true);
  ASSERT_EQ(cache.run(1), 0);
  stores[1].train(1);
  ASSERT_EQ(stores[1].wait(), 0);
  EXPECT_EQ(cache.run(1), -EINVAL) << "the velocities miss a push";
  stores[1].store->check();
}

/// What is cached needs no owner, until a call has failed.
TEST(Cached, AnOwnerThatIsLostIsNamedWhenItIsAsked) {
  Stores stores({.clock = Ssp{1}}, kZero);
  ASSERT_EQ(stores[0].store->owner(0), 0);
  Cache outdated(stores[1]), recent(stores[2]);
  ASSERT_EQ(outdated.run(2), 0);
  ASSERT_EQ(recent.run(1), 0);
  stores[0].store.reset();
  outdated.job().reads_only = recent.job().reads_only = true;
  EXPECT_NE(outdated.run(1), 0);
  EXPECT_NE(failure_of(stores[1]).find("lost rank 0, which owns range 0"), std::string::npos);
  EXPECT_EQ(recent.run(1), 0);
  stores[2].train(1);
  EXPECT_NE(stores[2].wait(), 0);
  EXPECT_NE(failure_of(stores[2]).find("lost rank 0"), std::string::npos);
  EXPECT_NE(recent.run(1), 0) << "later calls fail, too";
}

}  // namespace
}  // namespace store_test
