// A schedule that is written as GOAL moves the same bytes, in the same order, and ends in every simulator.
#include "goal_run.hpp"
#include "order.hpp"
#include "schedules.hpp"

#include "traces/goal.hpp"
#include "traces/schedule_tasks.hpp"
#include "param_sync/schedule/check.hpp"
#include "param_sync/schedule/schemes.hpp"
#include "tests/support/error_of.hpp"

#include <gtest/gtest.h>

namespace {

using namespace param_sync::schedule;
using gpusock::test::error_of;
using param_sync::traces::tasks_of;
using param_sync::traces::to_goal;
using traces_test::Ends;
using traces_test::GoalOp;
using traces_test::GoalRank;
using traces_test::make;
using traces_test::name_of;
using traces_test::schedules;
using traces_test::traffic_of;
using traces_test::TrafficByPair;

constexpr double kReduceBandwidth = 4e9;

std::vector<GoalRank> goal_of(const Schedule& schedule, std::uint64_t floats) {
  return traces_test::read_goal(to_goal(tasks_of(schedule, {floats, kReduceBandwidth})));
}
std::vector<GoalRank> goal_of(const Schedule& schedule) {
  return goal_of(schedule, 5 * static_cast<std::uint64_t>(schedule.chunks));
}

TEST(Goal, IsWhatLogGopSimReads) {
  Schedule schedule = make("mesh", 2);
  EXPECT_EQ(to_goal(tasks_of(schedule, {1000, 1e9})), R"(num_ranks 2

rank 0 {
l1: send 2000b to 1 tag 0 cpu 0
l2: recv 2000b from 1 tag 0 cpu 1
l3: calc 2000 cpu 1
l4: send 2000b to 1 tag 1 cpu 1
l5: recv 2000b from 1 tag 1 cpu 2
l3 requires l2
l4 requires l3
l5 irequires l1
}

rank 1 {
l1: send 2000b to 0 tag 0 cpu 0
l2: recv 2000b from 0 tag 0 cpu 1
l3: calc 2000 cpu 1
l4: send 2000b to 0 tag 1 cpu 1
l5: recv 2000b from 0 tag 1 cpu 2
l3 requires l2
l4 requires l3
l5 irequires l1
}
)");
}

TEST(Goal, ARankWithoutOpsComputesForNoTime) {
  EXPECT_EQ(to_goal(tasks_of(make("ring", 1), {1000, 1e9})), "num_ranks 1\n\nrank 0 {\nl1: calc 0\n}\n");
}

/// A byte counts processors: the number 255 would be the 256th.
TEST(Goal, LanesAboveTheLastProcessorShareIt) {
  param_sync::traces::Task task;
  task.kind = param_sync::traces::Kind::compute;
  param_sync::traces::Tasks tasks;
  for (const int lane : {254, 255, 4095}) {
    task.lane = lane;
    tasks.push_back(task);
  }
  const GoalRank read = traces_test::read_goal(to_goal({tasks})).at(0);
  EXPECT_EQ((std::vector<int>{read[0].cpu, read[1].cpu, read[2].cpu}), (std::vector<int>{254, 0, 15}));
}

TEST(Goal, EndsAndMovesTheSchedulesBytes) {
  for (const Schedule& schedule : schedules()) {
    const std::uint64_t floats = 5 * static_cast<std::uint64_t>(schedule.chunks);
    const TrafficByPair expected = traffic_of(schedule, floats);
    const std::vector<GoalRank> goal = goal_of(schedule, floats);
    for (const Edge& edge : check(schedule).edges) {
      const traces_test::Traffic& traffic = expected.at({edge.from, edge.to});
      EXPECT_EQ(traffic.messages, edge.messages) << name_of(schedule);
      EXPECT_EQ(traffic.bytes / (5 * sizeof(float)), edge.chunks) << name_of(schedule);  // the rest are signals
    }
    for (const Ends ends : {Ends::at_once, Ends::when_matched}) {
      for (unsigned seed = 0; seed < 3; ++seed) {
        const traces_test::GoalRun run = run_goal(goal, ends, seed);
        EXPECT_EQ(run.fault, "") << name_of(schedule) << ", seed " << seed;
        EXPECT_EQ(run.traffic, expected) << name_of(schedule) << ", seed " << seed;
      }
    }
  }
}

TEST(Goal, ChunksOfUnequalSizesAddUp) {
  for (const Schedule& schedule : schedules()) {
    const std::uint64_t floats = 2 * static_cast<std::uint64_t>(schedule.chunks) + 1;
    const traces_test::GoalRun run = run_goal(goal_of(schedule, floats), Ends::when_matched, 0);
    EXPECT_EQ(run.traffic, traffic_of(schedule, floats)) << name_of(schedule) << run.fault;
  }
}

TEST(Goal, KeepsTheOrderOfLanesAndWaits) {
  for (const Schedule& schedule : schedules())
    EXPECT_EQ(problem_of_order(goal_of(schedule), schedule), "") << name_of(schedule);
}

TEST(Goal, HasTheRightSumsInEveryOrder) {
  for (const Schedule& schedule : schedules()) {
    const std::vector<GoalRank> goal = goal_of(schedule);
    for (const Ends ends : {Ends::at_once, Ends::when_matched}) {
      for (unsigned seed = 0; seed < 3; ++seed) {
        EXPECT_EQ(problem_of_result(goal, schedule, ends, seed), "") << name_of(schedule) << ", seed " << seed;
      }
    }
  }
}

/// Each pair exchanges its data in place. If the receive waited for the end of the send, and the send for the receive,
/// both would wait forever.
TEST(Goal, WaitsForTheStartOfSendsOnly) {
  std::vector<GoalRank> goal = goal_of(make("butterfly", 4));
  EXPECT_EQ(run_goal(goal, Ends::when_matched, 0).fault, "");
  for (GoalRank& rank : goal) {
    for (GoalOp& op : rank) op.ended.insert(op.ended.end(), op.started.begin(), op.started.end());
  }
  EXPECT_NE(run_goal(goal, Ends::when_matched, 0).fault, "");
}

/// The schedules for the tests of mutants.
std::vector<Schedule> some_schedules() {
  std::vector<Schedule> some;
  for (const std::string& scheme : scheme_names()) some.push_back(make(scheme, 5, 7));
  some.push_back(make("ps", 4, 7, 1));
  return some;
}

/// Calls with each line.
template <class Call>
void for_each_line(const std::vector<GoalRank>& goal, Call call) {
  for (std::size_t rank = 0; rank < goal.size(); ++rank) {
    for (std::size_t i = 0; i < goal[rank].size(); ++i) call(rank, i);
  }
}

TEST(GoalMutants, AMessageLeftOutIsFound) {
  for (const Schedule& schedule : some_schedules()) {
    const std::vector<GoalRank> goal = goal_of(schedule);
    const traces_test::GoalRun whole = run_goal(goal, Ends::at_once, 0);
    for_each_line(goal, [&](std::size_t rank, std::size_t i) {
      const GoalOp& op = goal[rank][i];
      if (op.what == "calc") return;
      std::vector<GoalRank> mutant = goal;
      mutant[rank][i].what = "calc";
      EXPECT_NE(run_goal(mutant, Ends::at_once, 0).fault, "")
          << name_of(schedule) << ", rank " << rank << ", " << i + 1;
      for (GoalOp& other : mutant[static_cast<std::size_t>(op.peer)]) {  // now its other end, too
        if (other.what != op.what && other.peer == static_cast<int>(rank) && other.tag == op.tag) other.what = "calc";
      }
      EXPECT_NE(run_goal(mutant, Ends::at_once, 0).traffic, whole.traffic);
    });
  }
}

TEST(GoalMutants, ADependencyLeftOutIsFound) {
  for (const Schedule& schedule : some_schedules()) {
    const std::vector<GoalRank> goal = goal_of(schedule);
    int mutants = 0, unordered = 0, wrong = 0;
    for_each_line(goal, [&](std::size_t rank, std::size_t i) {
      for (const auto kind : {&GoalOp::ended, &GoalOp::started}) {
        for (std::size_t k = 0; k < (goal[rank][i].*kind).size(); ++k) {
          std::vector<GoalRank> mutant = goal;
          auto& before = mutant[rank][i].*kind;
          before.erase(before.begin() + static_cast<std::ptrdiff_t>(k));
          ++mutants;
          if (!problem_of_order(mutant, schedule).empty()) ++unordered;
          if (!problem_of_result(mutant, schedule, Ends::at_once, 0).empty()) ++wrong;
        }
      }
    });
    // Two waits of butterfly's lanes also follow from waits for other lanes.
    EXPECT_EQ(unordered, mutants - (schedule.scheme == "butterfly" ? 2 : 0)) << name_of(schedule);
    // A sum is wrong only where the wait was for its data, and if this run's order needs the wait.
    EXPECT_GT(wrong, 0) << name_of(schedule) << ", of " << mutants;
  }
}

TEST(Tasks, TooFewFloatsAreRefused) {
  EXPECT_EQ(error_of([] {
              tasks_of(make("ring", 4, 8), {7, 1e9});
            }),
            "28 bytes are 7 floats, and the schedule has 8 chunks: give at least 32 bytes, or fewer chunks");
  EXPECT_EQ(error_of([] { tasks_of(make("ring", 4, 8), {8, 1e9}); }), "");
}

TEST(Tasks, AScheduleThatHangsIsRefused) {
  Schedule schedule = make("ring", 3);
  schedule.ranks[1].lanes[0].clear();
  EXPECT_EQ(error_of([&] { tasks_of(schedule, {100, 1e9}); }), "the schedule does not end: check it first");
}

}  // namespace
