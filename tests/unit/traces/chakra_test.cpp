// A schedule that is written as Chakra's traces is the one that is written as GOAL.
#include "chakra_reader.hpp"
#include "order.hpp"
#include "schedules.hpp"

#include "traces/chakra.hpp"
#include "traces/schedule_tasks.hpp"

#include <gtest/gtest.h>

namespace {

using param_sync::traces::tasks_of;
using param_sync::traces::to_chakra;
using traces_test::Ends;
using traces_test::GoalRank;
using traces_test::name_of;
using traces_test::Schedule;
using traces_test::schedules;
using traces_test::traffic_of;

std::uint64_t floats_of(const Schedule& schedule) { return 5 * static_cast<std::uint64_t>(schedule.chunks); }

std::vector<GoalRank> trace_of(const Schedule& schedule) {
  return traces_test::read_chakra(to_chakra(tasks_of(schedule, {floats_of(schedule), 4e9})));
}

TEST(Chakra, EndsAndMovesTheSchedulesBytes) {
  for (const Schedule& schedule : schedules()) {
    const std::vector<GoalRank> trace = trace_of(schedule);
    for (const Ends ends : {Ends::at_once, Ends::when_matched}) {
      const traces_test::GoalRun run = run_goal(trace, ends, 1);
      EXPECT_EQ(run.fault, "") << name_of(schedule);
      EXPECT_EQ(run.traffic, traffic_of(schedule, floats_of(schedule))) << name_of(schedule);
    }
  }
}

TEST(Chakra, KeepsTheOrderOfLanesAndWaits) {
  for (const Schedule& schedule : schedules()) {
    EXPECT_EQ(problem_of_order(trace_of(schedule), schedule), "") << name_of(schedule);
    EXPECT_EQ(problem_of_result(trace_of(schedule), schedule, Ends::at_once, 1), "") << name_of(schedule);
  }
}

TEST(Chakra, TimesAreRoundedToMicroseconds) {
  const auto trace = traces_test::read_chakra(to_chakra(tasks_of(traces_test::make("mesh", 2), {1000, 1.3e9})));
  EXPECT_EQ(trace[0][2].what, "calc");
  EXPECT_EQ(trace[0][2].size, 2U);  // 2000 bytes: 1.54 us
}

/// ASTRA-sim opens a file for each rank, and waits for the last of its nodes.
TEST(Chakra, ARankWithoutOpsComputesForNoTime) {
  const std::vector<std::string> files = to_chakra(tasks_of(traces_test::make("ring", 1), {1000, 1e9}));
  ASSERT_EQ(files.size(), 1U);
  const GoalRank rank = traces_test::read_chakra(files)[0];
  ASSERT_EQ(rank.size(), 1U);
  EXPECT_EQ(rank[0].what, "calc");
  EXPECT_EQ(rank[0].size, 0U);
}

}  // namespace
