// Resident lanes: what they send first, and what becomes of it.
#include "param_sync/executor/handover.cuh"
#include "param_sync/executor/lane.cuh"
#include "trial/local_ranks.hpp"
#include "tests/unit/executor/schedules.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace resident_test {
namespace {

using namespace param_sync;
using executor::Exchanged;
using executor::LocalRanks;

constexpr int kTensors = 2;
constexpr std::uint64_t kFloats = 20'000;  // a rank's half of a tensor is larger than a ring: a send waits for the
                                           // other rank
constexpr float kGradient = 2, kWeight = 10;

__global__ void fill(float* gradients, float* weights) {
  for (std::uint64_t i = 0; i < kTensors * kFloats; ++i) {
    gradients[i] = kGradient;
    weights[i] = kWeight;
  }
}

/// What the backward kernel of a layer does at its end.
__global__ void hand_over(executor::ExchangeWords* words, int tensor, std::uint64_t* handed_over_ns) {
  *handed_over_ns = gpusock::clock_ns();
  executor::hand_over(words[tensor]);
}

/// The steps after the first, of all tensors.
__global__ void hand_over_again(executor::ExchangeWords* words, std::uint64_t steps) {
  for (std::uint64_t step = 1; step < steps; ++step) {
    for (int tensor = 0; tensor < kTensors; ++tensor) {
      while (!executor::has_version(words[tensor], step)) __nanosleep(1'000);
      executor::hand_over(words[tensor]);
    }
  }
}

/// What a training has beside its executor.
struct Memory {
  explicit Memory(gpusock::Context& context)
      : weights(context, kTensors * kFloats),
        velocity(context, kTensors * kFloats),
        words(context, kTensors),
        times(context, 1),
        failed(context, 1),
        stop(context, 1),
        handed_over_ns(context, kTensors) {}
  gpusock::DeviceBuffer<float> weights, velocity;
  gpusock::DeviceBuffer<executor::ExchangeWords> words;
  gpusock::DeviceBuffer<executor::ExchangeTimes> times;
  gpusock::DeviceBuffer<std::uint64_t> failed;
  gpusock::Mapped<std::uint64_t> stop, handed_over_ns;
};

/// Two tensors of all ranks, each by this schedule. Units are small, so that there is much to send.
struct Training {
  explicit Training(const std::string& scheme) : Training(executor_test::make(scheme, 2)) {}
  explicit Training(const schedule::Schedule& schedule)
      : ranks(schedules_of(schedule), gpusock::LinkKind::p2p, settings(), kTensors * kFloats) {
    for (int rank = 0; rank < ranks.nodes(); ++rank) {
      memory.push_back(std::make_unique<Memory>(ranks.context(rank)));
      gpusock::launch(ranks.context(rank), {}, fill, ranks.tensor(rank).data(), own(rank).weights.data());
      ranks.context(rank).synchronize();
    }
  }

  Memory& own(int rank) { return *memory[static_cast<std::size_t>(rank)]; }

  void hand_over_tensor(int tensor) {
    for (int rank = 0; rank < ranks.nodes(); ++rank) hand_over_tensor(rank, tensor);
  }
  void hand_over_tensor(int rank, int tensor) {
    gpusock::launch(ranks.context(rank), {}, hand_over, own(rank).words.data(), tensor,
                    own(rank).handed_over_ns.data() + tensor);
  }

  void end() {
    for (int rank = 0; rank < ranks.nodes(); ++rank) {
      ranks.executor(rank).await_resident();
      ranks.context(rank).synchronize();
      EXPECT_FALSE(ranks.executor(rank).failure().has_value());
    }
  }

  static executor::Settings settings() {
    executor::Settings settings;
    settings.ring_bytes = 4 << 10;
    settings.unit_bytes = 1000;
    settings.last_words = executor::LastWordsBy::host;  // as a training has it
    settings.execution = {.rank_order = true, .weights_apart = true};
    return settings;
  }

  static std::vector<schedule::Schedule> schedules_of(const schedule::Schedule& schedule) {
    std::vector<schedule::Schedule> both(kTensors, schedule);
    for (schedule::Rank& rank : both[1].ranks) {
      for (schedule::Lane& lane : rank.lanes) {
        for (schedule::Op& op : lane) op.channel += op.receives() || op.sends() ? 8 : 0;
      }
    }
    return both;
  }

  void start(executor::Residence residence) {
    for (int rank = 0; rank < ranks.nodes(); ++rank) {
      std::vector<Exchanged> tensors(kTensors);
      for (std::size_t i = 0; i < kTensors; ++i) {
        tensors[i].schedule = i;
        tensors[i].gradients = ranks.tensor(rank).data() + i * kFloats;
        tensors[i].count = kFloats;
        tensors[i].optimizing = {Sgd{0.5f, 0, 1},
                                 {own(rank).velocity.data() + i * kFloats, kFloats},
                                 own(rank).weights.data() + i * kFloats};
      }
      residence.timeout_ns = executor_test::kTimeoutNs;
      residence.words = own(rank).words.data();
      residence.times = own(rank).times.data();
      residence.failed = own(rank).failed.data();
      residence.stop = own(rank).stop.data();
      ranks.executor(rank).prepare_resident(tensors, residence);
    }
    for (int rank = 0; rank < ranks.nodes(); ++rank) ranks.executor(rank).start_resident();
  }

  std::vector<float> weights(int rank) const {
    std::vector<float> all(kTensors * kFloats);
    memory[static_cast<std::size_t>(rank)]->weights.copy_out(all);
    return all;
  }

  /// The sends of a tensor; `leading`: only those of lanes that begin with one.
  std::vector<executor::TracedOp> sends(int rank, std::size_t tensor, bool leading) {
    const auto trace = ranks.executor(rank).trace(tensor);
    const auto& lanes = ranks.executor(rank).schedule(tensor).ranks[static_cast<std::size_t>(rank)].lanes;
    std::vector<executor::TracedOp> all;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      if (leading && !lanes[lane].front().sends()) continue;
      std::copy_if(trace[lane].begin(), trace[lane].end(), std::back_inserter(all),
                   [&](const executor::TracedOp& op) { return lanes[lane][op.op].sends(); });
    }
    return all;
  }

  LocalRanks ranks;
  std::vector<std::unique_ptr<Memory>> memory;  // of kernels that have ended before the ranks do
};

/// One step; all gradients are there before the lanes start.
struct Step : Training {
  Step(const std::string& scheme, bool in_order) : Training(scheme) {
    for (int tensor = 0; tensor < kTensors; ++tensor) hand_over_tensor(tensor);
    for (int rank = 0; rank < ranks.nodes(); ++rank) ranks.context(rank).synchronize();
    start({.steps = 1, .in_order = in_order, .traced_steps = 1});
    end();
  }
};

std::vector<float> weights_of(int ranks) {
  return std::vector<float>(kTensors * kFloats, kWeight - 0.5f * static_cast<float>(ranks) * kGradient);
}

TEST(Resident, WhatTheFirstTensorHasToSendGoesFirst) {
  Step step("ps:even", true);
  for (int rank = 0; rank < 2; ++rank) {
    const auto first = step.sends(rank, 0, true), second = step.sends(rank, 1, false);
    ASSERT_EQ(first.size(), kFloats / 2 / 250);
    ASSERT_EQ(second.size(), 2 * kFloats / 2 / 250);
    const auto begin = [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; };
    EXPECT_LE(first.back().end_ns, std::min_element(second.begin(), second.end(), begin)->begin_ns) << rank;
    EXPECT_EQ(step.weights(rank), weights_of(2));
  }
}

/// The second tensor's gradients are on their way before the first tensor's are computed: a layer is pushed while those
/// before it are still in their backward pass.
TEST(Resident, PushesATensorBeforeTheGradientsOfAnotherAreThere) {
  Training training("ps:even");
  training.start({.steps = 1, .traced_steps = 1});
  training.hand_over_tensor(1);
  for (int rank = 0; rank < 2; ++rank) {
    executor::Executor& executor = training.ranks.executor(rank);
    const std::size_t first_block = executor.schedule(0).ranks[static_cast<std::size_t>(rank)].lanes.size();
    while (executor.positions()[first_block] == 0) ASSERT_FALSE(executor.failure().has_value());
  }
  training.hand_over_tensor(0);
  training.end();
  for (int rank = 0; rank < 2; ++rank) {
    const std::uint64_t handed_over_ns = training.own(rank).handed_over_ns[0];
    EXPECT_LE(training.sends(rank, 1, true).front().begin_ns, handed_over_ns);
    EXPECT_GE(training.sends(rank, 0, false).front().begin_ns, handed_over_ns);
  }
}

TEST(Resident, TracesTheFirstStepsOfEachLane) {
  for (const char* scheme : {"ps:even", "ring"}) {  // lanes with different numbers of ops; and one that applies sums
    constexpr std::uint64_t kSteps = 3, kTraced = 2;
    Training training(scheme);
    for (int tensor = 0; tensor < kTensors; ++tensor) training.hand_over_tensor(tensor);
    training.start({.steps = kSteps, .traced_steps = kTraced});
    for (int rank = 0; rank < 2; ++rank) {
      gpusock::launch(training.ranks.context(rank), {}, hand_over_again, training.own(rank).words.data(), kSteps);
    }
    training.end();
    const auto positions = training.ranks.executor(0).positions();
    const bool applies = std::string(scheme) == "ring";
    std::size_t block = 0;
    for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
      for (const auto& lane : training.ranks.executor(0).trace(tensor)) {
        EXPECT_EQ(lane.size(), (positions[block++] / kSteps + (applies ? 1 : 0)) * kTraced) << scheme;
        for (std::size_t i = 0; i < lane.size(); ++i) {
          EXPECT_EQ(lane[i].step, i / (lane.size() / kTraced));
          EXPECT_GE(lane[i].end_ns, lane[i].begin_ns);
          EXPECT_GE(lane[i].begin_ns, i > 0 ? lane[i - 1].end_ns : 1);
        }
      }
    }
  }
}

/// Counts the messages that a rank lets come and adds, all tensors together.
struct MessageCounts {
  explicit MessageCounts(Training& of, int at) : training(of), rank(at) {}

  /// By lane of both tensors: ops of one kind.
  template <class Is>
  std::vector<executor::TracedOp> traced(Is is) const {
    std::vector<executor::TracedOp> all;
    for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
      const auto trace = training.ranks.executor(rank).trace(tensor);
      for (std::size_t lane = 0; lane < trace.size(); ++lane) {
        std::copy_if(trace[lane].begin(), trace[lane].end(), std::back_inserter(all),
                     [&](const auto& op) { return is(lanes()[lane][op.op]); });
      }
    }
    return all;
  }

  /// That it has let come until now.
  std::uint64_t granted() const {
    const auto positions = training.ranks.executor(rank).positions();
    std::uint64_t count = 0;
    for (std::size_t block = 0; block < positions.size(); ++block) {
      if (lanes()[block % lanes().size()].front().is_signal() && lanes()[block % lanes().size()].front().sends())
        count += positions[block];
    }
    return count;
  }

  const std::vector<schedule::Lane>& lanes() const {
    return training.ranks.executor(rank).schedule(0).ranks[static_cast<std::size_t>(rank)].lanes;
  }

  Training& training;
  int rank;
};

/// Rank 1's gradients come late, and it is the first one from which rank 0 takes any. Until then as many other messages
/// are on their way to rank 0 as there are credits, in both tensors together. Afterwards never more.
TEST(Resident, AsManyMessagesAsCreditsAreOnTheirWayToAnOwner) {
  constexpr int kNodes = 4;
  constexpr std::uint64_t kCredits = 2;
  Training training(executor_test::make("ps:even", kNodes, 0, kCredits));
  training.start({.steps = 1, .traced_steps = 1, .credits = kCredits});
  for (int tensor = 0; tensor < kTensors; ++tensor) {
    for (const int rank : {0, 2, 3}) training.hand_over_tensor(rank, tensor);
  }
  const MessageCounts owner(training, 0);
  while (owner.granted() < kCredits) ASSERT_FALSE(training.ranks.executor(0).failure().has_value());
  EXPECT_EQ(owner.granted(), kCredits);
  for (int tensor = 0; tensor < kTensors; ++tensor) training.hand_over_tensor(1, tensor);
  training.end();
  for (int rank = 0; rank < kNodes; ++rank) {
    EXPECT_EQ(training.weights(rank), weights_of(kNodes)) << rank;
    const MessageCounts counts(training, rank);
    const auto grants = counts.traced([](const schedule::Op& op) { return op.is_signal() && op.sends(); });
    const auto additions = counts.traced([](const schedule::Op& op) { return op.reduces(); });
    ASSERT_EQ(grants.size(), additions.size());
    for (const executor::TracedOp& grant : grants) {
      const auto before = [&](std::uint64_t time_ns) { return time_ns <= grant.end_ns; };
      const auto granted = std::count_if(grants.begin(), grants.end(),
                                         [&](const auto& op) { return before(op.end_ns); });
      const auto added = std::count_if(additions.begin(), additions.end(),
                                       [&](const auto& op) { return before(op.end_ns); });
      EXPECT_LE(granted - added, static_cast<std::ptrdiff_t>(kCredits)) << rank;
    }
  }
}

__global__ void begin_waits(std::uint64_t timeout_ns, bool* never) {
  const auto deadlines = executor::Deadlines::after_ns(timeout_ns);
  never[0] = deadlines.peers.is_never();
  never[1] = deadlines.lanes.is_never();
}

/// A lane that waits for another one waits a little longer than for a peer, whatever the timeout is.
TEST(Resident, ALaneIsNotGivenUpBeforeItsPeers) {
  gpusock::Context context(gpusock::Options{});
  gpusock::Mapped<bool> never(context, 2);
  gpusock::launch(context, {}, begin_waits, ~std::uint64_t{0} - 1'000'000'000, never.data());
  context.synchronize();
  EXPECT_TRUE(never[0]);
  EXPECT_TRUE(never[1]);
}

TEST(Resident, EndsWithTheSameWeightsInAnyOrder) {
  const std::pair<const char*, bool> cases[] = {{"ps", true},    {"ps", false},   {"ring", true},
                                                {"ring", false}, {"chain", true}, {"butterfly", false}};
  for (const auto& [scheme, in_order] : cases) {
    Step step(scheme, in_order);
    for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(step.weights(rank), weights_of(2)) << scheme << in_order;
  }
}

}  // namespace
}  // namespace resident_test
