#include "plan/pool_plan.hpp"

#include "tests/support/error_of.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace param_sync {
namespace {

using gpusock::test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Widths = std::vector<std::uint32_t>;

std::uint64_t bytes_of(const Layout& layout) { return std::uint64_t{layout.parameters()} * sizeof(float); }

std::uint64_t largest_bytes(const Layout& layout) {
  return std::ranges::max_element(layout.layers, {}, &Layer::parameters)->parameters() * sizeof(float);
}

/// Layers whose weights are copied twice in a step.
std::vector<int> copied_twice(const PoolPlan& plan) {
  std::vector<int> layers;
  for (const PoolStay& stay : plan.stays) {
    if (!stay.is_gradient && stay.first == plan.errors_kernel(stay.layer)) layers.push_back(stay.layer);
  }
  return layers;
}

/// Models of layers of equal and of other sizes, and pools between the smallest possible one and one for all.
class PoolsOf : public ::testing::TestWithParam<Widths> {
 protected:
  template <class Check>
  static void for_pools(Check check) {
    const Layout layout = make_layout(GetParam(), 2);
    const std::uint64_t least = largest_bytes(layout), all = 2 * bytes_of(layout) + 16 * layout.layers.size();
    for (std::uint64_t part = 0; part <= 8; ++part) {
      const std::uint64_t bytes = least + (all - least) * part / 8;
      SCOPED_TRACE("pool of " + std::to_string(bytes) + " bytes");
      check(layout, bytes, PoolPlan::make(layout, bytes));
    }
  }
};

TEST_P(PoolsOf, EachKernelHasItsStayAndNothingExceedsThePool) {
  for_pools([](const Layout& layout, std::uint64_t bytes, const PoolPlan& plan) {
    EXPECT_LE(plan.floats * sizeof(float), bytes);
    for (const PoolStay& stay : plan.stays) {
      EXPECT_LE(stay.end(), plan.floats);
      EXPECT_EQ(stay.floats, layout[stay.layer].parameters());
    }
    for (int layer = 0; layer < layout.size(); ++layer) {
      const PoolStay& gradients = plan.stays[plan.stay_of(plan.gradients_kernel(layer))];
      EXPECT_TRUE(gradients.is_gradient && gradients.layer == layer);
      for (const int kernel : {plan.outputs_kernel(layer), plan.errors_kernel(layer)}) {
        if (kernel == plan.errors_kernel(0)) continue;  // there is none
        const PoolStay& weights = plan.stays[plan.stay_of(kernel)];
        EXPECT_TRUE(!weights.is_gradient && weights.layer == layer);
      }
    }
    EXPECT_TRUE(std::ranges::is_sorted(plan.stays, {}, &PoolStay::first));
  });
}

/// In three steps: all that had a stay's memory before, in this step or an earlier one, has ended. The stager waits for
/// no stay whose kernels come after the one that it makes room for.
TEST_P(PoolsOf, AStayWaitsForAllThatHadItsMemoryAndForNothingLater) {
  for_pools([](const Layout&, std::uint64_t, const PoolPlan& plan) {
    const std::size_t count = plan.stays.size();
    std::vector<std::set<std::size_t>> waited(3 * count);  // stays are numbered through all steps
    for (std::size_t number = 0; number < waited.size(); ++number) {
      const PoolStay& stay = plan.stays[number % count];
      for (const PoolStay::Before& before : stay.after) {
        const std::size_t in_step = number / count * count + before.stay;
        if (before.in_step_before && in_step < count) continue;  // before the first step
        const std::size_t other = before.in_step_before ? in_step - count : in_step;
        ASSERT_LT(other, number);
        EXPECT_TRUE(before.in_step_before || plan.stays[before.stay].last < stay.first);
        waited[number].insert(other);
        waited[number].insert(waited[other].begin(), waited[other].end());
      }
      for (std::size_t other = 0; other < number; ++other) {
        const PoolStay& earlier = plan.stays[other % count];
        const bool overlap = earlier.begin < stay.end() && stay.begin < earlier.end();
        EXPECT_TRUE(!overlap || waited[number].contains(other)) << number << " has the memory of " << other;
      }
    }
  });
}

/// It copies as a plan without a memory would, less what it keeps.
TEST_P(PoolsOf, APoolForAllCopiesEachVersionOnceAndSmallerOnesKeepWhatTheyCan) {
  for_pools([](const Layout& layout, std::uint64_t bytes, const PoolPlan& plan) {
    std::uint64_t twice = 0;
    for (const int layer : copied_twice(plan)) twice += layout[layer].parameters() * sizeof(float);
    EXPECT_EQ(plan.staged_bytes(), bytes_of(layout) + twice);
    // The last layer's errors are computed right after its outputs.
    const std::uint64_t kept_for_long = layout.size() == 1 ? 0 : layout.layers.back().parameters() * sizeof(float);
    EXPECT_LE(plan.staged_bytes(), 2 * bytes_of(layout) - layout[0].parameters() * sizeof(float) - kept_for_long);
    if (bytes >= 2 * bytes_of(layout) + 16 * layout.layers.size()) {
      EXPECT_THAT(copied_twice(plan), ElementsAre());
      for (std::size_t stay = 0; stay < plan.stays.size(); ++stay) {
        ASSERT_EQ(plan.stays[stay].after.size(), 1);  // itself, in the step before
        EXPECT_TRUE(plan.stays[stay].after[0].stay == stay && plan.stays[stay].after[0].in_step_before);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Models, PoolsOf,
                         ::testing::Values(Widths{7, 7}, Widths{15, 15, 15, 15, 15, 15, 15}, Widths{100, 20, 20, 20, 3},
                                           Widths{3, 50, 4, 60, 5, 70, 6, 9}, Widths(kLayersMax + 1, 3)));

/// Layers of 16 x 16 floats. Besides what the next two kernels need, three layers' room, a pool has room for weights
/// that are kept: those that are needed again first.
TEST(PoolPlan, KeepsWhatIsNeededAgainFirst) {
  const Layout layout = make_layout(Widths(9, 16), 2);
  const std::uint64_t layer = largest_bytes(layout);
  EXPECT_EQ(PoolPlan::make(layout, layer).ahead, 0);
  EXPECT_EQ(PoolPlan::make(layout, 2 * layer).ahead, 1);
  EXPECT_EQ(PoolPlan::make(layout, 3 * layer).ahead, 2);
  EXPECT_THAT(copied_twice(PoolPlan::make(layout, layer)), ElementsAre(6, 5, 4, 3, 2, 1));
  EXPECT_THAT(copied_twice(PoolPlan::make(layout, 3 * layer)), ElementsAre(5, 4, 3, 2, 1));
  EXPECT_THAT(copied_twice(PoolPlan::make(layout, 5 * layer)), ElementsAre(3, 2, 1));
  EXPECT_THAT(copied_twice(PoolPlan::make(layout, 7 * layer)), ElementsAre(1));
}

TEST(PoolPlan, ATooSmallPoolIsRefused) {
  const Layout layout = make_layout(Widths{10, 20, 30, 10}, 2);
  EXPECT_EQ(PoolPlan::make(layout, 21 * 30 * 4).floats, 21 * 30);
  const std::string said = error_of([&] { PoolPlan::make(layout, 21 * 30 * 4 - 1); });
  EXPECT_THAT(said, HasSubstr("--device-pool of 2519 bytes has no room for layer 20 x 30, which takes 2520 bytes"));
}

}  // namespace
}  // namespace param_sync
