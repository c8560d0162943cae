// Resident lanes: what they send first, and what becomes of it.
#include "executor/handover.cuh"
#include "executor/local_ranks.hpp"
#include "tests/unit/executor/schedules.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

namespace resident_test {
namespace {

using namespace param_sync;
using executor::Exchanged;
using executor::LocalRanks;

constexpr int kRanks = 2, kTensors = 2;
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

/// Two tensors of two ranks, each by this scheme. Units are small, so that there is much to send.
struct Training {
  explicit Training(const std::string& scheme)
      : ranks(schedules_of(scheme), gpusock::LinkKind::p2p, settings(), kTensors * kFloats) {
    for (int rank = 0; rank < kRanks; ++rank) {
      memory.push_back(std::make_unique<Memory>(ranks.context(rank)));
      gpusock::launch(ranks.context(rank), {}, fill, ranks.tensor(rank).data(), own(rank).weights.data());
      ranks.context(rank).synchronize();
    }
  }

  Memory& own(int rank) { return *memory[static_cast<std::size_t>(rank)]; }

  void hand_over_tensor(int tensor) {
    for (int rank = 0; rank < kRanks; ++rank) {
      gpusock::launch(ranks.context(rank), {}, hand_over, own(rank).words.data(), tensor,
                      own(rank).handed_over_ns.data() + tensor);
    }
  }

  void end() {
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.executor(rank).await_resident();
      ranks.context(rank).synchronize();
      EXPECT_FALSE(ranks.executor(rank).failure().has_value());
    }
  }

  static executor::Settings settings() {
    executor::Settings settings;
    settings.ring_bytes = 4 << 10;
    settings.unit_bytes = 1000;
    settings.execution = {.rank_order = true, .weights_apart = true};
    return settings;
  }

  static std::vector<schedule::Schedule> schedules_of(const std::string& scheme) {
    std::vector<schedule::Schedule> both(kTensors, executor_test::make(scheme, kRanks));
    for (schedule::Rank& rank : both[1].ranks) {
      for (schedule::Lane& lane : rank.lanes) {
        for (schedule::Op& op : lane) op.channel += op.receives() || op.sends() ? 8 : 0;
      }
    }
    return both;
  }

  void start(executor::Residence residence) {
    for (int rank = 0; rank < kRanks; ++rank) {
      std::vector<Exchanged> tensors(kTensors);
      for (std::size_t i = 0; i < kTensors; ++i) {
        tensors[i].schedule = i;
        tensors[i].gradients = ranks.tensor(rank).data() + i * kFloats;
        tensors[i].count = kFloats;
        tensors[i].optimizing = {
            {0.5f, 0, 1}, own(rank).velocity.data() + i * kFloats, own(rank).weights.data() + i * kFloats};
      }
      residence.timeout_ns = executor_test::kTimeoutNs;
      residence.words = own(rank).words.data();
      residence.times = own(rank).times.data();
      residence.failed = own(rank).failed.data();
      residence.stop = own(rank).stop.data();
      ranks.executor(rank).start_resident(tensors, residence);
    }
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
    for (int rank = 0; rank < kRanks; ++rank) ranks.context(rank).synchronize();
    start({.steps = 1, .in_order = in_order, .traced_steps = 1});
    end();
  }
};

const std::vector<float> kWeights(kTensors* kFloats, kWeight - 0.5f * kRanks * kGradient);

TEST(Resident, WhatTheFirstTensorHasToSendGoesFirst) {
  Step step("ps:even", true);
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto first = step.sends(rank, 0, true), second = step.sends(rank, 1, false);
    ASSERT_EQ(first.size(), kFloats / 2 / 250);
    ASSERT_EQ(second.size(), 2 * kFloats / 2 / 250);
    const auto begin = [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; };
    EXPECT_LE(first.back().end_ns, std::min_element(second.begin(), second.end(), begin)->begin_ns) << rank;
    EXPECT_EQ(step.weights(rank), kWeights);
  }
}

/// The second tensor's gradients are on their way before the first tensor's are computed: a layer is pushed while those
/// before it are still in their backward pass.
TEST(Resident, PushesATensorBeforeTheGradientsOfAnotherAreThere) {
  Training training("ps:even");
  training.start({.steps = 1, .traced_steps = 1});
  training.hand_over_tensor(1);
  for (int rank = 0; rank < kRanks; ++rank) {
    executor::Executor& executor = training.ranks.executor(rank);
    const std::size_t first_block = executor.schedule(0).ranks[static_cast<std::size_t>(rank)].lanes.size();
    while (executor.positions()[first_block] == 0) ASSERT_FALSE(executor.failure().has_value());
  }
  training.hand_over_tensor(0);
  training.end();
  for (int rank = 0; rank < kRanks; ++rank) {
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
    for (int rank = 0; rank < kRanks; ++rank) {
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

TEST(Resident, EndsWithTheSameWeightsInAnyOrder) {
  for (const char* scheme : {"ps", "ring", "chain", "butterfly"}) {
    for (const bool in_order : {true, false}) {
      Step step(scheme, in_order);
      for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(step.weights(rank), kWeights) << scheme << in_order;
    }
  }
}

}  // namespace
}  // namespace resident_test
