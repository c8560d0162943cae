// How far the host launches steps ahead of the device.
#include "training/queued.hpp"

#include <gtest/gtest.h>

namespace param_sync {
namespace {

/// Steps that are launched before the host waits.
std::uint64_t steps_ahead(std::uint64_t launches_each) {
  QueuedSteps queued;
  queued.expect(launches_each);
  std::uint64_t steps = 0;
  do {
    queued.add();
    ++steps;
  } while (!queued.full());
  return steps;
}

TEST(QueuedSteps, AreBoundedByTheirLaunches) {
  EXPECT_EQ(steps_ahead(11), QueuedSteps::kStepsMax) << "three layers";
  for (std::uint64_t launches = 1; launches <= QueuedSteps::kLaunchesMax; ++launches) {
    ASSERT_LE(steps_ahead(launches) * launches, QueuedSteps::kLaunchesMax) << launches;
  }
  EXPECT_EQ(steps_ahead(41), 12u) << "eight layers of factors: 32 steps were 1,312 launches";
  EXPECT_EQ(steps_ahead(10'000), 1u);
}

TEST(QueuedSteps, BeginAnewWhenTheHostHasWaited) {
  QueuedSteps queued;
  queued.expect(200);
  queued.add();
  EXPECT_FALSE(queued.full());
  queued.add();
  EXPECT_TRUE(queued.full());
  queued.clear();
  EXPECT_FALSE(queued.full());
}

}  // namespace
}  // namespace param_sync
