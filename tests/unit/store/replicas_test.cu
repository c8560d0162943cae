// Replicas of what owners have: who waits for them, what ranks hold, and what those that are left make of it.
#include "tests/unit/store/stores.cuh"

#include <cuda/atomic>

#include <map>
#include <random>
#include <set>

namespace store_test {
namespace {

using param_sync::HeldRange;
using param_sync::RecoveredRanges;

constexpr int kPushes = 40;
constexpr std::uint64_t kLong = 9'000;  // more than a ring has room for

Weights initial_weights(std::initializer_list<std::size_t> floats) {
  Weights all;
  float value = 1;
  for (const std::size_t count : floats) {
    all.emplace_back(count);
    for (float& weight : all.back()) weight = value += 0.25f;
  }
  return all;
}

StoreOptions with_replicas(int replicas) {
  return {.clock = Bsp(), .update = Update::sgd(0.05f, 0.9f), .replicas = replicas};
}

/// A range as a serial run has it.
struct Serial {
  std::vector<float> weights, states;

  explicit Serial(std::vector<float> initial) : weights(std::move(initial)), states(weights.size()) {}

  void step(int step, int ranks) {
    const Sgd update = Sgd::of({.learning_rate = 0.05f, .momentum = 0.9f, .scale = 1});
    for (std::size_t i = 0; i < weights.size(); ++i) {
      float sum = gradient_of(0, step, i, weights[i]);
      for (int rank = 1; rank < ranks; ++rank) sum += gradient_of(rank, step, i, weights[i]);
      update.apply(sum, {&states[i], 1}, weights[i]);
    }
  }
};

/// A range of a serial run after so many steps.
Serial serial_at(const std::vector<float>& initial, std::uint64_t clock, int ranks = kRanks) {
  Serial range(initial);
  for (std::uint64_t step = 0; step < clock; ++step) range.step(static_cast<int>(step), ranks);
  return range;
}

/// What a worker's kernel of these tests uses.
struct ReplicaJob {
  Job job;
  int first_step = 0;
  std::uint64_t* done = nullptr;  ///< mapped: how many steps have read all ranges
};

/// Each step pushes a gradient of all ranges, and then pulls all.
__global__ void push_then_pull_all(ReplicaJob of) {
  const Job& job = of.job;
  const auto block = gpusock::this_block();
  const auto deadline = [&] { return gpusock::Deadline::after_ns(job.timeout_ns); };
  int error = 0;
  std::uint64_t begin = 0;
  const auto for_ranges = [&](auto call) {
    begin = 0;
    for (unsigned range = 0; range < job.ranges && error == 0; begin += job.floats[range++]) call(range);
  };
  for (int step = of.first_step; step < job.steps && error == 0; ++step) {
    for_ranges([&](unsigned range) {
      for (std::uint64_t i = threadIdx.x; i < job.floats[range]; i += blockDim.x) {
        job.gradients[i] = gradient_of(job.rank, step, i, job.weights[begin + i]);
      }
      __syncthreads();
      error = param_sync::push(block, job.store, range, job.gradients, deadline());
    });
    for_ranges(
        [&](unsigned range) { error = param_sync::pull(block, job.store, range, job.weights + begin, deadline()); });
    if (threadIdx.x == 0 && error == 0) {
      cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>(*of.done).store(static_cast<std::uint64_t>(step) + 1,
                                                                                 cuda::memory_order_relaxed);
    }
  }
  if (threadIdx.x == 0) *job.result = error;
}

/// The weights of all ranges on a device, and how far a rank has come.
struct Worker {
  Worker(Rank& of, const Weights& initial) : rank(of), weights(of.context, of.all), done(of.context, 1) {
    std::size_t begin = 0;
    for (const auto& range : initial) {
      weights.copy_in(range, begin);
      begin += range.size();
    }
    done[0] = 0;
  }

  void launch(int first_step, int steps) {
    ReplicaJob of{rank.job, first_step, done.data()};
    of.job.weights = weights.data();
    of.job.steps = steps;
    gpusock::launch(rank.context, {.block = 2, .stream = &rank.stream}, push_then_pull_all, of);
  }
  std::uint64_t steps_done() {
    return cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>(done[0]).load(cuda::memory_order_relaxed);
  }

  Rank& rank;
  gpusock::DeviceBuffer<float> weights;
  gpusock::Mapped<std::uint64_t> done;
};

/// Each rank has what it owns, and its replicas, in the last two versions, with the bits of a serial run.
TEST(Replicas, AreTheOwnersWeightsAndStates) {
  const Weights initial = initial_weights({kLong, 5, 3, 0, 7});
  for (const int replicas : {2, 3}) {
    Stores stores(with_replicas(replicas), initial);
    std::vector<std::unique_ptr<Worker>> workers;
    for (int rank = 0; rank < kRanks; ++rank) {
      workers.push_back(std::make_unique<Worker>(stores[rank], initial));
      workers.back()->launch(0, 3);
    }
    for (int rank = 0; rank < kRanks; ++rank) ASSERT_EQ(stores[rank].wait(), 0);
    std::map<std::size_t, int> holders;
    for (int rank = 0; rank < kRanks; ++rank) {
      for (const HeldRange& held : stores[rank].store->held()) {
        SCOPED_TRACE("rank " + std::to_string(rank) + ", range " + std::to_string(held.range) + ", clock " +
                     std::to_string(held.clock));
        const int owner = stores[rank].store->owner(held.range);
        EXPECT_LT((rank - owner + kRanks) % kRanks, replicas);
        const Serial serial = serial_at(initial[held.range], held.clock);
        EXPECT_EQ(held.weights, serial.weights);
        EXPECT_EQ(held.states, serial.states);
        EXPECT_TRUE(held.clock == 3 || held.clock == 2);
        ++holders[held.range];
      }
    }
    for (std::size_t range = 0; range < initial.size(); ++range) {
      EXPECT_EQ(holders[range], initial[range].empty() ? 0 : 2 * replicas) << range;
    }
  }
}

/// Pushes a range of ones, waits for a word of the host, and pulls the range.
__global__ void push_then_pull(Job job, const std::uint64_t* go, std::uint64_t* pulled) {
  const auto block = gpusock::this_block();
  const auto deadline = gpusock::Deadline::after_ns(job.timeout_ns);
  int error = param_sync::push(block, job.store, 0, job.gradients, deadline);
  const cuda::atomic_ref<const std::uint64_t, cuda::thread_scope_system> may(*go);
  while (error == 0 && may.load(cuda::memory_order_acquire) == 0) __nanosleep(1'000);
  __syncthreads();
  if (error == 0) error = param_sync::pull(block, job.store, 0, job.weights, deadline);
  if (threadIdx.x == 0) {
    *job.result = error;
    cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>(*pulled).store(1, cuda::memory_order_release);
  }
}

/// Rank 0 owns the range, and rank 1 has a replica: rank 2 reads a version only once rank 1 has it.
TEST(Replicas, AreThereBeforeOthersRead) {
  const Weights initial{std::vector<float>(4, 1)};
  Stores stores(with_replicas(2), initial);
  ASSERT_EQ(stores[0].store->owner(0), 0);
  std::vector<std::unique_ptr<gpusock::Mapped<std::uint64_t>>> go, pulled;
  for (int rank = 0; rank < kRanks; ++rank) {
    for (auto* const words : {&go, &pulled}) {
      words->push_back(std::make_unique<gpusock::Mapped<std::uint64_t>>(stores[rank].context, 1));
      (*words->back())[0] = 0;
    }
    gpusock::launch(stores[rank].context, {.block = 2, .stream = &stores[rank].stream}, push_then_pull,
                    stores[rank].job, go.back()->data(), pulled.back()->data());
  }
  const auto set = [&](int rank) {
    cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>((*go[static_cast<std::size_t>(rank)])[0])
        .store(1, cuda::memory_order_release);
  };
  const auto has_pulled = [&](int rank) {
    return cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>((*pulled[static_cast<std::size_t>(rank)])[0])
               .load(cuda::memory_order_acquire) != 0;
  };
  set(2);
  set(0);
  EXPECT_EQ(stores[0].wait(), 0) << "the owner waits for nobody";
  // Rank 2 has had as much time as the owner. Its answer would be on the way if it did not wait for rank 1.
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  while (std::chrono::steady_clock::now() < until) ASSERT_FALSE(has_pulled(2));
  set(1);
  for (const int rank : {1, 2}) EXPECT_EQ(stores[rank].wait(), 0);
}

/// A rank that has a replica is lost before it has the newest version: who reads it is told.
TEST(Replicas, OfALostRankAreNotWaitedFor) {
  const Weights initial{std::vector<float>(4, 1)};
  Stores stores(with_replicas(2), initial);
  for (int rank = 0; rank < kRanks; ++rank) {
    stores[rank].job.only_pushes = true;
    stores[rank].train(1);
    ASSERT_EQ(stores[rank].wait(), 0);
    stores[rank].job.only_pushes = false;
  }
  gpusock::launch(stores[0].context, {.block = 2, .stream = &stores[0].stream}, read_all, stores[0].job,
                  stores[0].read->data());
  ASSERT_EQ(stores[0].wait(), 0);  // all pushes are applied
  stores[1].store.reset();
  gpusock::launch(stores[2].context, {.block = 2, .stream = &stores[2].stream}, read_all, stores[2].job,
                  stores[2].read->data());
  EXPECT_EQ(stores[2].wait(), -ECONNRESET);
  EXPECT_NE(failure_of(stores[2]).find("lost rank 1"), std::string::npos) << failure_of(stores[2]);
}

/// Groups of so many ranks, connected. Each may end by itself.
struct Connected {
  explicit Connected(int count) {
    std::vector<gpusock::Endpoint> addresses;
    for (int rank = 0; rank < count; ++rank) {
      contexts.push_back(std::make_unique<gpusock::Context>());
      groups.push_back(std::make_unique<param_sync::Group>(*contexts.back(), rank, count));
      addresses.push_back(groups.back()->listen(gpusock::Endpoint::parse(group_test::kAddress)));
    }
    std::vector<std::jthread> connecting;
    for (const auto& group : groups) connecting.emplace_back([&group, &addresses] { group->connect(addresses); });
  }
  std::vector<std::unique_ptr<gpusock::Context>> contexts;
  std::vector<std::unique_ptr<param_sync::Group>> groups;
};

/// Stores of all ranks, which push and pull.
class AtWork {
 public:
  AtWork(const StoreOptions& options, const Weights& initial) {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(*connected_.contexts[rank], *connected_.groups[rank], initial, options));
    }
    {
      std::vector<std::jthread> starting;
      for (const auto& rank : ranks_) starting.emplace_back([&rank] { rank->start(); });
    }
    for (const auto& rank : ranks_) {
      workers_.push_back(std::make_unique<Worker>(*rank, initial));
      workers_.back()->launch(0, kPushes);
    }
  }

  /// Ends a rank in the middle of what it does. Its connections end without a word, as those of a killed process.
  void lose(int rank) {
    const auto at = static_cast<std::size_t>(rank);
    connected_.contexts[at]->cancel();
    ranks_[at]->wait();
    workers_[at].reset();
    ranks_[at].reset();
    connected_.groups[at].reset();
    connected_.contexts[at].reset();
  }

  Rank& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  Worker& worker(int rank) { return *workers_[static_cast<std::size_t>(rank)]; }

 private:
  Connected connected_{kRanks};
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

/// Ranks are lost at a random moment. Those that are left have all that any of them has read, in the bits of a serial
/// run; and they go on from there.
TEST(Replicas, KeepWhatWasReadWhenRanksAreLost) {
  const Weights initial = initial_weights({700, kLong, 5, 64});
  std::vector<std::size_t> floats;
  for (const auto& range : initial) floats.push_back(range.size());
  std::set<std::uint64_t> clocks;
  for (unsigned seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const int replicas = 2 + static_cast<int>(seed % 2);
    AtWork ranks(with_replicas(replicas), initial);
    std::vector<int> left{0, 1, 2};
    const std::uint64_t moment = random() % (kPushes - 1), turns = random() % 2'000;
    while (ranks.worker(0).steps_done() < moment) std::this_thread::yield();
    for (std::uint64_t i = 0; i < turns; ++i) ranks.worker(0).steps_done();
    while (left.size() > static_cast<std::size_t>(kRanks + 1 - replicas)) {
      const auto lost = left.begin() + static_cast<std::ptrdiff_t>(random() % left.size());
      ranks.lose(*lost);
      left.erase(lost);
    }
    std::vector<std::vector<HeldRange>> held;
    std::uint64_t read = 0;
    for (const int rank : left) {
      ranks[rank].wait();
      held.push_back(ranks[rank].store->held());
      read = std::max(read, ranks.worker(rank).steps_done());
    }
    Connected next(static_cast<int>(left.size()));
    std::vector<RecoveredRanges> recovered(left.size());
    {
      std::vector<std::jthread> recovering;
      for (std::size_t i = 0; i < left.size(); ++i) {
        recovering.emplace_back(
            [&, i] { recovered[i] = param_sync::recover(*next.groups[i], *next.contexts[i], floats, held[i]); });
      }
    }
    for (const RecoveredRanges& of : recovered) {
      EXPECT_GE(of.clock, read) << "what a rank has read is lost";
      EXPECT_LE(of.clock, read + 1);
      for (std::size_t range = 0; range < initial.size(); ++range) {
        const Serial serial = serial_at(initial[range], of.clock);
        ASSERT_EQ(of.weights[range], serial.weights) << range;
        ASSERT_EQ(of.states[range], serial.states) << range;
      }
    }
    clocks.insert(recovered[0].clock);
  }
  EXPECT_GT(clocks.size(), 3u) << "ranks were lost at few different steps";
}

/// A store that begins with weights and states goes on as the one that they come from.
TEST(Replicas, AStoreGoesOnFromWeightsAndStates) {
  const Weights initial = initial_weights({33, 5});
  RecoveredRanges recovered{.clock = 2, .weights = {}, .states = {}};
  for (const auto& range : initial) {
    const Serial at = serial_at(range, 2);
    recovered.weights.push_back(at.weights);
    recovered.states.push_back(at.states);
  }
  Groups groups(1);
  std::vector<std::unique_ptr<Store>> stores;
  for (int rank = 0; rank < kRanks; ++rank) {
    stores.push_back(std::make_unique<Store>(groups.group(rank), recovered, with_replicas(2)));
    for (const HeldRange& held : stores.back()->held()) {
      EXPECT_EQ(held.clock, 0u);
      EXPECT_EQ(held.weights, recovered.weights[held.range]);
      EXPECT_EQ(held.states, recovered.states[held.range]);
    }
  }
}

TEST(Replicas, WhatRanksDoNotHaveIsNamed) {
  Connected next(2);
  std::vector<std::string> errors(2);
  {
    std::vector<std::jthread> recovering;
    for (std::size_t i = 0; i < 2; ++i) {
      recovering.emplace_back([&, i] {
        const std::vector<HeldRange> held{{0, 7, {1, 2}, {0, 0}}};
        const std::vector<std::size_t> floats{2, 3};
        errors[i] = error_of<gpusock::Error>(
            [&] { param_sync::recover(*next.groups[i], *next.contexts[i], floats, held); });
      });
    }
  }
  for (const std::string& error : errors) EXPECT_NE(error.find("do not have range 1"), std::string::npos) << error;
}

TEST(Replicas, MisuseIsRefused) {
  Groups groups(1);
  const auto refusal = [&](const StoreOptions& options, const Weights& states = {}) {
    return error_of<gpusock::Error>([&] {
      Store store(groups.group(0), RecoveredRanges{0, {{1, 2}}, states}, options);
    });
  };
  EXPECT_NE(refusal({.replicas = 0}).find("0 replicas of each range, and 3 ranks"), std::string::npos);
  EXPECT_NE(refusal({.replicas = 4}).find("4 replicas of each range, and 3 ranks"), std::string::npos);
  EXPECT_NE(refusal({.clock = Ssp{1}, .replicas = 2}).find("another clock than bsp"), std::string::npos);
  EXPECT_NE(refusal({.rows_max = 1, .replicas = 2}).find("rows, keys or a tree"), std::string::npos);
  EXPECT_NE(refusal({}, {{1, 2, 3}}).find("states of other weights"), std::string::npos);
  EXPECT_NE(refusal({.clock = Async()}, {{1, 2}}).find("each rank has states of its own"), std::string::npos);
}

}  // namespace
}  // namespace store_test
