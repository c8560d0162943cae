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

__global__ void fill_and_hand_over(float* gradients, float* weights, executor::ExchangeWords* words) {
  for (std::uint64_t i = 0; i < kTensors * kFloats; ++i) {
    gradients[i] = kGradient;
    weights[i] = kWeight;
  }
  for (int tensor = 0; tensor < kTensors; ++tensor) executor::hand_over(words[tensor]);
}

/// What a training has beside its executor.
struct Memory {
  explicit Memory(gpusock::Context& context)
      : weights(context, kTensors * kFloats),
        velocity(context, kTensors * kFloats),
        words(context, kTensors),
        times(context, 1),
        failed(context, 1),
        stop(context, 1) {}
  gpusock::DeviceBuffer<float> weights, velocity;
  gpusock::DeviceBuffer<executor::ExchangeWords> words;
  gpusock::DeviceBuffer<executor::ExchangeTimes> times;
  gpusock::DeviceBuffer<std::uint64_t> failed;
  gpusock::Mapped<std::uint64_t> stop;
};

/// Two tensors of two ranks, each by this scheme; all gradients are there before the lanes start. Units are small, so
/// that there is much to send.
struct Step {
  Step(const std::string& scheme, bool in_order)
      : ranks(schedules_of(scheme), gpusock::LinkKind::p2p, settings(), kTensors * kFloats) {
    for (int rank = 0; rank < kRanks; ++rank) start(rank, in_order);
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.executor(rank).await_resident();
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

  void start(int rank, bool in_order) {
    gpusock::Context& context = ranks.context(rank);
    memory.push_back(std::make_unique<Memory>(context));
    Memory& own = *memory.back();
    float* gradients = ranks.tensor(rank).data();
    gpusock::launch(context, {}, fill_and_hand_over, gradients, own.weights.data(), own.words.data());
    context.synchronize();
    std::vector<Exchanged> tensors(kTensors);
    for (std::size_t i = 0; i < kTensors; ++i) {
      tensors[i].schedule = i;
      tensors[i].gradients = gradients + i * kFloats;
      tensors[i].count = kFloats;
      tensors[i].optimizing = {{0.5f, 0, 1}, own.velocity.data() + i * kFloats, own.weights.data() + i * kFloats};
    }
    executor::Residence residence;
    residence.steps = residence.traced_steps = 1;
    residence.timeout_ns = executor_test::kTimeoutNs;
    residence.words = own.words.data();
    residence.times = own.times.data();
    residence.failed = own.failed.data();
    residence.stop = own.stop.data();
    residence.in_order = in_order;
    ranks.executor(rank).start_resident(tensors, residence);
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
