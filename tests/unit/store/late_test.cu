// Stores whose clocks drop late pushes: the others do not wait for a slow rank, and the sums have the right bits.
#include "param_sync/pull_together.cuh"
#include "tests/unit/store/stores.cuh"

#include <atomic>
#include <iterator>

namespace store_test::late {
namespace {

using param_sync::Backup;
using param_sync::Coded;

constexpr std::size_t kSizes[] = {5, 1, 0, 1'001, 20'000};  // the last one is more than a ring
constexpr int kSteps = 6;

Weights initial_weights() { return weights_of_sizes(kSizes); }

/// Weights that one thread trains.
struct Reference {
  /// A step with the gradients that some ranks compute in their step number `step`.
  void train(int step, const std::vector<int>& ranks, float scale) {
    for (std::size_t range = 0; range < weights.size(); ++range) {
      for (std::size_t i = 0; i < weights[range].size(); ++i) {
        float& weight = weights[range][i];
        float sum = gradient_of(ranks[0], step, i, weight);
        for (std::size_t other = 1; other < ranks.size(); ++other) sum += gradient_of(ranks[other], step, i, weight);
        sgd.apply(scale * sum, {&velocities[range][i], 1}, weight);
      }
    }
  }
  std::vector<float> all() const {
    std::vector<float> all;
    for (const std::vector<float>& range : weights) all.insert(all.end(), range.begin(), range.end());
    return all;
  }

  Sgd sgd;
  Weights weights = initial_weights();
  Weights velocities = [] {
    Weights zeros = initial_weights();
    for (std::vector<float>& range : zeros) std::fill(range.begin(), range.end(), 0.0f);
    return zeros;
  }();
};

const Update kUpdate = Update::sgd(0.05f, 0.9f, 1.0f / kRanks);
const Sgd kSgd = Sgd::of({kUpdate.learning_rate, kUpdate.momentum, kUpdate.scale, kUpdate.nesterov});

/// Rank 2 is so slow that it does nothing while the others train.
TEST(LatePushes, BackupsAreNotWaitedFor) {
  Stores stores({.clock = Backup{1}, .update = kUpdate}, initial_weights());
  Reference expected{kSgd};
  for (int rank = 0; rank < 2; ++rank) stores[rank].train(kSteps);
  for (int rank = 0; rank < 2; ++rank) ASSERT_EQ(stores[rank].wait(), 0) << "rank " << rank;
  for (int step = 0; step < kSteps; ++step) expected.train(step, {0, 1}, 1.5f);
  EXPECT_EQ(stores[1].weights_now(), expected.all());

  // Its pushes for the first two versions are late, and change nothing.
  stores[2].job.only_pushes = true;
  stores[2].train(2);
  ASSERT_EQ(stores[2].wait(), 0);
  EXPECT_EQ(stores[2].weights_now(), expected.all());

  // A pull has told it the newest version: its next push is one of that.
  stores[2].job.only_pushes = false;
  stores[2].train(1);
  ASSERT_EQ(stores[2].wait(), 0);
  stores[1].train(1);
  ASSERT_EQ(stores[1].wait(), 0);
  expected.train(0, {1, 2}, 1.5f);
  EXPECT_EQ(stores[1].weights_now(), expected.all());
  for (int rank = 0; rank < kRanks; ++rank) stores[rank].store->check();
}

/// What comes within the grace counts. If nothing comes, a version ends with it.
TEST(LatePushes, AGraceHasPushesThatComeALittleLater) {
  constexpr std::uint64_t kHourNs = 3'600'000'000'000, kMillisecondNs = 1'000'000;
  for (const int trained : {3, 2}) {
    Stores stores({.clock = Backup{1, trained == 3 ? kHourNs : kMillisecondNs}, .update = kUpdate}, initial_weights());
    Reference expected{kSgd};
    const std::vector<int> ranks = trained == 3 ? std::vector{0, 1, 2} : std::vector{0, 1};
    for (int step = 0; step < kSteps; ++step) expected.train(step, ranks, trained == 3 ? 1.0f : 1.5f);
    for (const int rank : ranks) stores[rank].train(kSteps);
    for (const int rank : ranks) ASSERT_EQ(stores[rank].wait(), 0) << "rank " << rank;
    EXPECT_EQ(stores[1].weights_now(), expected.all());
    for (int rank = 0; rank < kRanks; ++rank) stores[rank].store->check();
  }
}

/// Asks for a range, says so in words[0], and takes the answer when the host sets words[1].
static __global__ void pull_slowly(Job job, unsigned range, float* to, std::uint64_t* words) {
  const auto block = gpusock::this_block();
  const auto deadline = gpusock::Deadline::after_ns(job.timeout_ns);
  const param_sync::store::Worker& worker = *job.store.worker;
  const param_sync::store::Request request{param_sync::store::RequestKind::pull, range, worker.clock_of(range),
                                           job.floats[range]};
  int error = param_sync::store::send_request(block, worker, request, false, deadline);
  if (threadIdx.x == 0) {
    param_sync::executor::SystemWord(words[0]).store(1, cuda::memory_order_release);
    param_sync::executor::await(
        [&] { return param_sync::executor::SystemWord(words[1]).load(cuda::memory_order_acquire) != 0; },
        [] { return false; });
  }
  block.sync();
  if (error == 0) {
    error = param_sync::store::receive_answer(block, worker, range, sizeof request, {1, job.floats[range]}, to, nullptr,
                                              deadline);
  }
  if (threadIdx.x == 0) *job.result = error;
}

/// The answer is larger than a ring, so most of it is sent when the weights have changed.
TEST(LatePushes, ASlowReaderReadsOneVersion) {
  constexpr unsigned kLong = std::size(kSizes) - 1;
  Weights versions;
  Reference expected{kSgd};
  for (int step = 0; step < kSteps; ++step) {
    versions.push_back(expected.weights[kLong]);
    expected.train(step, {0, 1}, 1.5f);
  }
  versions.push_back(expected.weights[kLong]);
  Stores stores({.clock = Backup{1}, .update = kUpdate}, initial_weights());
  gpusock::DeviceBuffer<float> to(stores[2].context, kSizes[kLong]);
  gpusock::Mapped<std::uint64_t> words(stores[2].context, 2);
  words[0] = words[1] = 0;
  gpusock::launch(stores[2].context, {.block = 2, .stream = &stores[2].stream}, pull_slowly, stores[2].job, kLong,
                  to.data(), words.data());
  while (std::atomic_ref(words[0]).load(std::memory_order_acquire) == 0) std::this_thread::yield();
  for (int rank = 0; rank < 2; ++rank) stores[rank].train(kSteps);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(stores[rank].wait(), 0) << "rank " << rank;
  EXPECT_EQ(stores[1].weights_now(), expected.all());  // all sums are there
  std::atomic_ref(words[1]).store(1, std::memory_order_release);
  ASSERT_EQ(stores[2].wait(), 0);
  std::vector<float> read(kSizes[kLong]);
  to.copy_out(read);
  EXPECT_NE(std::find(versions.begin(), versions.end(), read), versions.end());
}

/// Pulls all ranges at one version, and pushes the gradients of that version, until there is version `until`.
/// `computed` counts the steps that it has computed.
static __global__ void train_together(Job job, float* all, std::uint64_t* after, std::uint64_t until, int* computed) {
  const auto block = gpusock::this_block();
  const auto deadline = gpusock::Deadline::after_ns(job.timeout_ns);
  const auto begin_of = [&](unsigned range) {
    std::uint64_t begin = 0;
    for (unsigned before = 0; before < range; ++before) begin += job.floats[before];
    return all + begin;
  };
  int error = 0;
  for (;;) {
    error = param_sync::pull_together(block, job.store, job.ranges, begin_of, after, deadline);
    const std::uint64_t version = param_sync::clock_of(job.store, 0);
    if (error != 0 || version >= until) break;
    __nanosleep(job.pause_ns);
    for (unsigned range = 0; range < job.ranges && error == 0; ++range) {
      const float* const weights = begin_of(range);
      for (std::uint64_t i = threadIdx.x; i < job.floats[range]; i += blockDim.x) {
        job.gradients[i] = gradient_of(job.rank, static_cast<int>(version), i, weights[i]);
      }
      __syncthreads();
      error = param_sync::push(block, job.store, range, job.gradients, deadline);
    }
    if (error != 0) break;
    if (threadIdx.x == 0) ++*computed;
  }
  if (threadIdx.x == 0) *job.result = error;
}

/// What a rank's train_together() uses.
struct Together {
  explicit Together(Rank& of) : rank(of), after(of.context, kRanks), computed(of.context, 1) { computed[0] = 0; }

  void train(std::uint64_t until, unsigned pause_ns) {
    rank.job.rank = 0;  // all are one group, and compute the same
    rank.job.pause_ns = pause_ns;
    gpusock::launch(rank.context, {.block = 2, .stream = &rank.stream}, train_together, rank.job, rank.read->data(),
                    after.data(), until, computed.data());
  }
  std::vector<float> weights() {
    EXPECT_EQ(rank.wait(), 0);
    std::vector<float> all(rank.all);
    rank.read->copy_out(all);
    return all;
  }

  Rank& rank;
  gpusock::DeviceBuffer<std::uint64_t> after;
  gpusock::Mapped<int> computed;
};

/// With connections of their own, ranges have different versions for a while.
TEST(LatePushes, CodedSumsHaveTheBitsOfARunWithoutStragglers) {
  Reference expected{kSgd};
  for (int step = 0; step < kSteps; ++step) expected.train(step, {0}, 1);
  for (const unsigned connections : {1u, 3u}) {
    Stores stores({.clock = Coded{2}, .update = kUpdate, .connections = connections}, initial_weights());
    Together first(stores[0]), slow(stores[1]), last(stores[2]);
    slow.train(kSteps, 3'000'000);
    first.train(kSteps, 0);
    EXPECT_EQ(first.weights(), expected.all());
    EXPECT_EQ(slow.weights(), expected.all());
    EXPECT_GE(first.computed[0] + slow.computed[0], kSteps);
    last.train(kSteps, 0);  // it has missed all steps, and does none of them
    EXPECT_EQ(last.weights(), expected.all());
    EXPECT_EQ(last.computed[0], 0);
    for (int rank = 0; rank < kRanks; ++rank) stores[rank].store->check();
  }
}

/// Any two of three ranks may be away.
TEST(LatePushes, OneRankOfAGroupIsEnough) {
  Reference expected{kSgd};
  Stores stores({.clock = Coded{2}, .update = kUpdate}, initial_weights());
  for (int rank = 0; rank < kRanks; ++rank) {
    Together alone(stores[rank]);
    alone.train(static_cast<std::uint64_t>(rank) + 1, 0);
    expected.train(rank, {0}, 1);
    EXPECT_EQ(alone.weights(), expected.all()) << "rank " << rank;
    EXPECT_EQ(alone.computed[0], 1);
  }
}

TEST(LatePushes, ClocksThatDoNotFitTheRanksAreRefused) {
  Groups groups(1);
  const auto refusal = [&](const StoreOptions& options) {
    return error_of<gpusock::Error>([&] { Store(groups.group(0), Weights{{1}}, options); });
  };
  EXPECT_NE(refusal({.clock = Backup{3}}).find("backup:3 of 3 ranks leaves none to wait for"), std::string::npos);
  EXPECT_NE(refusal({.clock = Coded{1}}).find("coded:1 makes groups of 2 ranks, and 3 is no multiple"),
            std::string::npos);
  EXPECT_NE(refusal({.clock = Backup{1}, .replicas = 2}).find("another clock than bsp"), std::string::npos);
  EXPECT_NE(refusal({.clock = Coded{2}, .correction = {.divides_by_lag = true}}).find("no late push is applied"),
            std::string::npos);
}

}  // namespace
}  // namespace store_test::late
