#include "plan/sync.hpp"

#include "arithmetic/averages.cuh"

#include "tests/support/error_of.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace param_sync {
namespace {

using gpusock::test::error_of;
using ::testing::HasSubstr;

struct Sizes {
  int nodes;
  int slots;
};

/// Slots of some nodes, in runs of several seeds and lengths.
class SlotsOf : public ::testing::TestWithParam<Sizes> {
 protected:
  static std::uint64_t round_steps() {
    return static_cast<std::uint64_t>((GetParam().nodes + GetParam().slots - 1) / GetParam().slots);
  }

  template <class Check>
  static void for_runs(Check check) {
    const SyncPlan slots = sync_of("slots:" + std::to_string(GetParam().slots));
    for (const std::uint64_t seed : {std::uint64_t{1}, ~std::uint64_t{0}}) {
      for (const std::uint64_t steps : {std::uint64_t{1}, 4 * round_steps(), 4 * round_steps() + 1}) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", steps " + std::to_string(steps));
        check(slots.of_run(GetParam().nodes, 3, seed, steps));
      }
    }
  }

  static std::vector<std::uint64_t> slots_of(const SyncPlan& plan, int rank) {
    std::vector<std::uint64_t> steps;
    for (std::uint64_t step = 0; step < plan.steps; ++step) {
      if (plan.exchanges_after(step, {rank})) steps.push_back(step);
    }
    return steps;
  }
};

TEST_P(SlotsOf, AFewNodesHaveOneAfterEachStepButTheLast) {
  for_runs([](const SyncPlan& plan) {
    for (std::uint64_t step = 0; step + 1 < plan.steps; ++step) {
      int with_slot = 0;
      for (int rank = 0; rank < GetParam().nodes; ++rank) with_slot += plan.exchanges_after(step, {rank}) ? 1 : 0;
      EXPECT_LE(with_slot, GetParam().slots) << "step " << step;
    }
  });
}

TEST_P(SlotsOf, EachNodeHasOneInARound) {
  for_runs([](const SyncPlan& plan) {
    for (int rank = 0; rank < GetParam().nodes; ++rank) {
      std::vector<std::uint64_t> rounds, all;
      for (const std::uint64_t step : slots_of(plan, rank)) rounds.push_back(step / round_steps());
      for (std::uint64_t round = 0; round * round_steps() < plan.steps; ++round) all.push_back(round);
      EXPECT_EQ(rounds, all);
      EXPECT_EQ(plan.exchanges(), all.size());
    }
  });
}

TEST_P(SlotsOf, ANodeGoesOnForLessThanTwoRoundsWithoutOne) {
  for_runs([](const SyncPlan& plan) {
    for (int rank = 0; rank < GetParam().nodes; ++rank) {
      std::uint64_t before = 0;
      for (const std::uint64_t step : slots_of(plan, rank)) {
        EXPECT_LT(step + 1 - before, 2 * round_steps());
        before = step + 1;
      }
      EXPECT_EQ(before, plan.steps);
    }
  });
}

TEST_P(SlotsOf, WeightsArePulledAfterEachOne) {
  for_runs([](const SyncPlan& plan) {
    for (int rank = 0; rank < GetParam().nodes; ++rank) {
      std::uint64_t version = 0;
      for (std::uint64_t step = 0; step < plan.steps; ++step) {
        EXPECT_EQ(plan.version_of(step, {rank}), version);
        EXPECT_EQ(plan.begins_alone(step, {rank}), step == 0 || plan.exchanges_after(step - 1, {rank}));
        version += plan.exchanges_after(step, {rank}) ? 1 : 0;
        EXPECT_TRUE(plan.pulls_after(version));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, SlotsOf,
                         ::testing::Values(Sizes{1, 1}, Sizes{2, 1}, Sizes{3, 2}, Sizes{4, 1}, Sizes{4, 2}, Sizes{4, 4},
                                           Sizes{7, 3}, Sizes{11, 1}, Sizes{64, 24}, Sizes{64, 64}));

TEST(Slots, RoundsHaveOrdersOfTheirOwnWhichFollowFromTheSeed) {
  std::set<std::vector<std::uint64_t>> orders;
  for (const std::uint64_t seed : {1u, 2u}) {
    for (std::uint64_t round = 0; round < 20; ++round) {
      std::vector<std::uint64_t> order;
      for (int rank = 0; rank < 16; ++rank) order.push_back(Slots{1, 16, seed}.step_of(rank, round));
      EXPECT_TRUE(orders.insert(order).second) << "seed " << seed << ", round " << round;
    }
  }
}

TEST(Slots, NoNodeIsFavoured) {
  constexpr int kNodes = 4, kRounds = 1000;
  for (int rank = 0; rank < kNodes; ++rank) {
    std::vector<int> times(kNodes);
    for (std::uint64_t round = 0; round < kRounds; ++round) ++times[Slots{1, kNodes, 1}.step_of(rank, round)];
    EXPECT_GT(*std::min_element(times.begin(), times.end()), kRounds / kNodes * 4 / 5);
  }
}

TEST(Slots, MoreOfThemThanNodesAreRefused) {
  EXPECT_NO_THROW(sync_of("slots:4").of_run(4, 3, 1, 10));
  EXPECT_THAT(error_of([] { sync_of("slots:5").of_run(4, 3, 1, 10); }),
              HasSubstr("more slots than there are nodes, 4"));
}

struct StreamingOf {
  std::uint64_t interval;
  std::uint64_t overlap;
  int layers;
  std::uint64_t steps;
};

/// Layers that are averaged at different steps.
class Streaming : public ::testing::TestWithParam<StreamingOf> {
 protected:
  static SyncPlan plan() {
    const auto [interval, overlap, layers, steps] = GetParam();
    const std::string text = "streaming:" + std::to_string(interval) + "," + std::to_string(overlap);
    return sync_of(text).of_run(4, layers, 1, steps);
  }
};

TEST_P(Streaming, LayersAreExchangedAtStepsOfTheirOwnAndAfterTheLast) {
  const auto [interval, overlap, layers, steps] = GetParam();
  for (int layer = 0; layer < layers; ++layer) {
    const std::uint64_t offset = interval * static_cast<std::uint64_t>(layer) / static_cast<std::uint64_t>(layers);
    std::uint64_t count = 0;
    for (std::uint64_t step = 0; step < steps; ++step) {
      EXPECT_EQ(plan().exchanges_before(step, {0, layer}), count);
      const bool in_time = step + 1 + overlap < steps;
      const bool expected = step + 1 == steps || (in_time && (step + 1 + offset) % interval == 0);
      EXPECT_EQ(plan().exchanges_after(step, {0, layer}), expected) << "layer " << layer << ", step " << step;
      count += expected ? 1 : 0;
    }
    EXPECT_EQ(plan().exchanges_before(steps, {0, layer}), count);
    EXPECT_LE(count, plan().exchanges());
  }
}

TEST_P(Streaming, AStepHasItsShareOfTheLayers) {
  const auto [interval, overlap, layers, steps] = GetParam();
  for (std::uint64_t step = 0; step + 1 < steps; ++step) {
    std::uint64_t together = 0;
    for (int layer = 0; layer < layers; ++layer) together += plan().exchanges_after(step, {0, layer}) ? 1 : 0;
    EXPECT_LE(together, (static_cast<std::uint64_t>(layers) + interval - 1) / interval);
  }
}

TEST_P(Streaming, AveragesAreTakenOverlapStepsLater) {
  const auto [interval, overlap, layers, steps] = GetParam();
  for (int layer = 0; layer < layers; ++layer) {
    std::uint64_t version = 0;
    for (std::uint64_t step = 1; step < steps; ++step) {
      const bool expected = step > overlap && plan().exchanges_after(step - 1 - overlap, {0, layer});
      EXPECT_EQ(plan().begins_alone(step, {0, layer}), expected) << "layer " << layer << ", step " << step;
      version += expected ? 1 : 0;
      EXPECT_EQ(plan().version_of(step, {0, layer}), version);
    }
    EXPECT_EQ(version + 1, plan().exchanges_before(steps, {0, layer})) << "an average would come after the last step";
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Streaming,
                         ::testing::Values(StreamingOf{1, 0, 3, 5}, StreamingOf{4, 0, 3, 21}, StreamingOf{4, 3, 3, 20},
                                           StreamingOf{16, 5, 3, 100}, StreamingOf{3, 2, 8, 30},
                                           StreamingOf{5, 4, 3, 1}, StreamingOf{5, 4, 3, 5}, StreamingOf{5, 4, 3, 6},
                                           StreamingOf{30, 29, 64, 59}));

TEST(StreamingOne, LayerThatNothingOverlapsIsAveragedAsAllAreAtOnce) {
  for (const std::uint64_t interval : {std::uint64_t{1}, std::uint64_t{3}, ~std::uint64_t{0}}) {
    const SyncPlan streaming = sync_of("streaming:" + std::to_string(interval) + ",0").of_run(4, 1, 1, 20);
    const SyncPlan every = sync_of("every:" + std::to_string(interval)).of_run(4, 1, 1, 20);
    for (std::uint64_t step = 0; step <= 20; ++step) {
      EXPECT_EQ(streaming.exchanges_before(step, {}), every.exchanges_before(step, {}));
      EXPECT_EQ(streaming.begins_alone(step, {}), every.begins_alone(step, {}));
    }
  }
}

TEST(TakenLate, HalfOfTheAverageAndHalfOfTheNodesOwn) { EXPECT_EQ(taken_late(1, 4), 2.5f); }

}  // namespace
}  // namespace param_sync
