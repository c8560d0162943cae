// A plan of another program that is written as GOAL moves the same bytes, in the same order, and has the same result.
#include "plan_checks.hpp"
#include "plans.hpp"

#include "foreign/prove.hpp"
#include "foreign/read.hpp"
#include "traces/goal.hpp"
#include "traces/plan_tasks.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/foreign/maker.hpp"
#include "tests/unit/foreign/mscclpp_maker.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#if PLAN_TRACES_TEST_CHAKRA
#include "chakra_reader.hpp"
#include "traces/chakra.hpp"
#endif

namespace {

using namespace foreign_test;
using gpusock::test::error_of;
using param_sync::traces::tasks_of;
using param_sync::traces::to_goal;
using traces_test::Ends;
using traces_test::GoalOp;
using traces_test::GoalOpAt;
using traces_test::GoalRank;
using traces_test::NamedPlan;
using traces_test::PlanOrder;
using traces_test::plans;
using traces_test::Traffic;

constexpr std::uint64_t kFloatsOfACell = 5;

std::uint64_t floats_of(const Plan& plan) {
  return kFloatsOfACell * static_cast<std::uint64_t>(plan.data_chunks) * static_cast<std::uint64_t>(plan.slices);
}

/// The plan's pipelines have as many iterations for a chunk of these floats as its chunks have cells.
std::vector<GoalRank> goal_of(Plan plan) {
  if (plan.iteration_bytes != 0) plan.iteration_bytes = kFloatsOfACell * sizeof(float);
  return traces_test::read_goal(to_goal(tasks_of(plan, {floats_of(plan), 4e9})));
}

/// Calls with each line.
template <class Call>
void for_each_line(const std::vector<GoalRank>& goal, Call call) {
  for (std::size_t rank = 0; rank < goal.size(); ++rank) {
    for (std::size_t i = 0; i < goal[rank].size(); ++i) call(GoalOpAt{rank, i});
  }
}

TEST(Plans, AreProved) {
  for (const auto& [name, plan] : plans()) {
    const Proof proof = prove(plan);
    EXPECT_TRUE(proof.is_proved) << name << ": " << proof.why;
  }
}

/// What the plan's steps send: each signal, and each wish to read another rank's memory, has a byte.
std::map<std::pair<int, int>, Traffic> traffic_of(const Plan& plan) {
  std::map<std::pair<int, int>, Traffic> traffic;
  const auto add = [&traffic](int from, int to, std::uint64_t bytes) {
    if (from == to) return;
    ++traffic[{from, to}].messages;
    traffic[{from, to}].bytes += bytes;
  };
  std::map<int, int> waiting;  // by counter: the rank
  for (const Block& block : plan.blocks) {
    for (const Step& step : block.steps) {
      if (step.kind == Kind::wait) waiting[step.counter] = block.rank;
    }
  }
  for (const Block& block : plan.blocks) {
    for (const Step& step : block.steps) {
      if (step.kind == Kind::signal) add(block.rank, waiting.at(step.counter), 1);
      if (step.kind != Kind::move || step.count == 0) continue;
      const std::uint64_t bytes = kFloatsOfACell * sizeof(float) * static_cast<std::uint64_t>(step.count);
      if (step.sends != kNone) add(block.rank, plan.connections[static_cast<std::size_t>(step.sends)].to, bytes);
      for (const Place& place : step.to) add(block.rank, place.rank, bytes);
      for (const Place& place : step.from) {
        add(block.rank, place.rank, 1);
        add(place.rank, block.rank, bytes);
      }
    }
  }
  return traffic;
}

TEST(PlanAsGoal, EndsAndMovesThePlansBytes) {
  for (const auto& [name, plan] : plans()) {
    for (const Ends ends : {Ends::at_once, Ends::when_matched}) {
      const traces_test::GoalRun run = run_goal(goal_of(plan), ends, 1);
      EXPECT_EQ(run.fault, "") << name;
      EXPECT_EQ(run.traffic, traffic_of(plan)) << name;
    }
  }
}

TEST(PlanAsGoal, KeepsTheOrderOfStepsAndWaits) {
  for (const auto& [name, plan] : plans()) {
    const std::vector<GoalRank> goal = goal_of(plan);
    EXPECT_EQ(PlanOrder(goal, plan).problem(goal), "") << name;
  }
}

/// In random orders, and in those in which one line comes as late as it can.
TEST(PlanAsGoal, HasTheRightResultInEveryOrder) {
  for (const auto& [name, plan] : plans()) {
    const std::vector<GoalRank> goal = goal_of(plan);
    for_each_line(goal, [&, &name = name, &plan = plan](const GoalOpAt& last) {
      for (const Ends ends : {Ends::at_once, Ends::when_matched})
        EXPECT_EQ(problem_of_result(goal, plan, ends, 0, last), "")
            << name << ", last " << last.first << " " << last.second;
    });
    for (unsigned seed = 0; seed < 10; ++seed)
      EXPECT_EQ(problem_of_result(goal, plan, Ends::at_once, seed), "") << name;
  }
}

// Sanitizers' builds are not optimized: there fewer plans show as much of memory.
#ifdef TRACES_TEST_FEW
constexpr unsigned kChangedPlans = 100;
#else
constexpr unsigned kChangedPlans = 600;
#endif

/// Plans that are changed by chance, and are proved still, are written as they are.
TEST(PlanAsGoal, HasTheRightResultIfThePlanIsChangedByChance) {
  int proved = 0;
  for (unsigned seed = 0; seed < kChangedPlans; ++seed) {
    std::mt19937 random(seed);
    Plan plan = plans()[seed % plans().size()].plan;
    for (unsigned changes = 0; changes <= seed % 3; ++changes) mutate(plan, random);
    if (!could_be_read(plan)) continue;
    try {
      if (!prove(plan).is_proved) continue;
    } catch (const Error&) {
      continue;  // not understood
    }
    ++proved;
    const std::vector<GoalRank> goal = goal_of(plan);
    for (const Ends ends : {Ends::at_once, Ends::when_matched}) {
      for (unsigned order = 0; order < 3; ++order)
        EXPECT_EQ(problem_of_result(goal, plan, ends, order), "") << "seed " << seed;
    }
  }
  EXPECT_GT(proved, static_cast<int>(kChangedPlans / 4));
  RecordProperty("proved", proved);
}

TEST(PlanMutants, AMessageLeftOutIsFound) {
  for (const auto& [name, plan] : plans()) {
    const std::vector<GoalRank> goal = goal_of(plan);
    for_each_line(goal, [&, &name = name](const GoalOpAt& line) {
      const GoalOp& op = goal[line.first][line.second];
      if (op.what == "calc") return;
      std::vector<GoalRank> mutant = goal;
      mutant[line.first][line.second].what = "calc";
      EXPECT_NE(run_goal(mutant, Ends::at_once, 0).fault, "")
          << name << ", rank " << line.first << ", " << line.second + 1;
      for (GoalOp& other : mutant[static_cast<std::size_t>(op.peer)]) {  // now its other end, too
        if (other.what != op.what && other.peer == static_cast<int>(line.first) && other.tag == op.tag)
          other.what = "calc";
      }
      EXPECT_NE(run_goal(mutant, Ends::at_once, 0).traffic, run_goal(goal, Ends::at_once, 0).traffic) << name;
    });
  }
}

/// A dependency that is left out is found by the order of steps, or by a wrong result if what was waited for comes
/// late. Only those that also follow from others are not.
TEST(PlanMutants, ADependencyLeftOutIsFound) {
  int mutants = 0, implied = 0, by_order = 0, by_result = 0;
  for (const auto& [name, plan] : plans()) {
    const std::vector<GoalRank> goal = goal_of(plan);
    const PlanOrder order(goal, plan);
    for_each_line(goal, [&, &name = name, &plan = plan](const GoalOpAt& line) {
      for (const auto kind : {&GoalOp::ended, &GoalOp::started}) {
        for (std::size_t k = 0; k < (goal[line.first][line.second].*kind).size(); ++k) {
          std::vector<GoalRank> mutant = goal;
          auto& waits = mutant[line.first][line.second].*kind;
          const GoalOpAt before{line.first, waits[k]};
          waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(k));
          if (order.has_order(mutant, line, before, kind == &GoalOp::ended)) {
            ++implied;
            continue;
          }
          ++mutants;
          const bool is_unordered = !order.problem(mutant).empty();
          bool is_wrong = false;
          for (unsigned seed = 0; seed < 4; ++seed)
            is_wrong |= !problem_of_result(mutant, plan, Ends::at_once, seed, before).empty();
          by_order += is_unordered ? 1 : 0;
          by_result += is_wrong ? 1 : 0;
          EXPECT_TRUE(is_unordered || is_wrong)
              << name << ": rank " << line.first << ", line " << line.second + 1 << " without " << before.second + 1;
        }
      }
    });
  }
  EXPECT_GT(mutants, 100);
  EXPECT_GT(by_order, 100);
  EXPECT_GT(by_result, 50);
  RecordProperty("mutants", mutants);
  RecordProperty("implied", implied);
  RecordProperty("by_order", by_order);
  RecordProperty("by_result", by_result);
}

/// A write of 20 bytes into rank 1's memory, a signal, and the copy that waits for both.
TEST(PlanAsGoal, IsWhatLogGopSimReads) {
  Maker maker(Collective::all_reduce, 2, 1, 1);
  for (int rank = 0; rank < 2; ++rank) maker.block(rank);
  const int counter = maker.counter();
  maker.move(0, {in(0, 0)}, {scratch(1, 0)});
  maker.signal(0, counter);
  maker.wait(1, counter);
  maker.move(1, {in(1, 0), scratch(1, 0)}, {in(1, 0)});
  EXPECT_EQ(to_goal(tasks_of(maker.plan, {5, 1e9})), R"(num_ranks 2

rank 0 {
l1: send 20b to 1 tag 0 cpu 0
l2: send 1b to 1 tag 1 cpu 0
l2 irequires l1
}

rank 1 {
l1: calc 20 cpu 0
l2: recv 20b from 0 tag 0 cpu 1
l3: recv 1b from 0 tag 1 cpu 1
l1 requires l2
l1 requires l3
}
)");
}

/// ASTRA-sim's own trace of this ring, for 1 MiB, has the same messages and computations in the same order. There, too,
/// each one waits for the one before it and for nothing else.
TEST(PlanAsGoal, ARingHasTheLinesOfAstraSimsOwnTrace) {
  const auto goal = traces_test::read_goal(to_goal(tasks_of(ring(8), {(1 << 20) / sizeof(float), 18.7e9})));
  for (std::size_t rank = 0; rank < 8; ++rank) {
    ASSERT_EQ(goal[rank].size(), 35U);
    std::size_t line = 0;
    const auto expect = [&](const std::string& what, std::uint64_t size) {
      const GoalOp& op = goal[rank][line];
      EXPECT_EQ(op.what, what) << line;
      EXPECT_EQ(op.size, size) << line;
      EXPECT_EQ(op.ended.size() + op.started.size(), line == 0 ? 0U : 1U) << line;
      if (line > 0) {
        EXPECT_EQ(op.ended.empty() ? op.started[0] : op.ended[0], line - 1);
      }
      ++line;
    };
    for (int step = 0; step < 14; ++step) {
      expect("send", 1 << 17);
      expect("recv", 1 << 17);
      if (step < 7) expect("calc", 7009);
    }
  }
}

TEST(PlanAsGoal, EachAdditionAndEachLocalCopyTakesTime) {
  Maker maker(Collective::all_reduce, 1, 1, 2, false);
  maker.move(maker.block(0), {in(0, 0)}, {scratch(0, 0), scratch(0, 1)});
  maker.move(0, {scratch(0, 0), scratch(0, 0), scratch(0, 1)}, {out(0, 0)});
  const auto tasks = tasks_of(maker.plan, {100, 1e9});
  ASSERT_EQ(tasks[0].size(), 2U);
  EXPECT_EQ(tasks[0][0].ns, 400U);
  EXPECT_EQ(tasks[0][1].ns, 800U);
}

/// What follows many waits waits for a task of no time, which waits for them: a file of n steps has no n * n
/// dependencies.
TEST(PlanAsGoal, ManyWaitsBecomeOne) {
  constexpr int kSignals = 200;
  Maker maker(Collective::all_reduce, 2, 1, 1);
  for (int rank = 0; rank < 2; ++rank) maker.block(rank);
  const int counter = maker.counter();
  for (int i = 0; i < kSignals; ++i) maker.signal(0, counter);
  for (int i = 0; i < kSignals; ++i) maker.wait(1, counter);
  maker.move(1, {in(1, 0)}, {scratch(1, 0)});
  const auto goal = traces_test::read_goal(to_goal(tasks_of(maker.plan, {1, 1e9})));
  for (const GoalOp& op : goal[1]) EXPECT_LE(op.ended.size(), 65U);
  std::size_t copy = 0;
  while (copy < goal[1].size() && !(goal[1][copy].what == "calc" && goal[1][copy].size != 0)) ++copy;
  ASSERT_LT(copy, goal[1].size());
  std::set<std::size_t> before;
  std::vector<std::size_t> open{copy};
  while (!open.empty()) {
    const std::size_t op = open.back();
    open.pop_back();
    for (const std::size_t other : goal[1][op].ended) {
      if (before.insert(other).second) open.push_back(other);
    }
  }
  int signals = 0;
  for (const std::size_t op : before) signals += goal[1][op].what == "recv" ? 1 : 0;
  EXPECT_EQ(signals, kSignals);
}

/// A relaxed signal does not say that data have arrived. So what follows it waits for the signal alone.
TEST(PlanAsGoal, ARelaxedSignalOrdersNoData) {
  for (const auto& [name, plan] : plans()) {
    if (name != "relaxed before") continue;
    const GoalRank rank = goal_of(plan)[1];
    ASSERT_EQ(rank[0].what, "calc");
    ASSERT_EQ(rank[0].ended.size(), 1U);
    EXPECT_EQ(rank[rank[0].ended[0]].size, 1U);  // a signal
    EXPECT_EQ(rank[1].ended.size(), 3U);         // the copy, the second signal, the data
    return;
  }
  FAIL() << "there is no such plan";
}

TEST(PlanAsTasks, ASwitchIsRefused) {
  std::vector<Json> operations[2];
  for (int rank = 0; rank < 2; ++rank) {
    const Json place = {{"switch_channel_id", 0}, {"index", rank}, {"size", 1}};
    operations[rank] = surrounded({foreign_test::move("glres", {place}, {place}, "switch")});
  }
  Json json = foreign_test::pair("allreduce", 2, 2, 0, operations[0], operations[1]);
  for (int rank = 0; rank < 2; ++rank) {
    Json& gpu = json["gpus"][static_cast<std::size_t>(rank)];
    gpu["channels"].push_back(
        {{"channel_type", "switch"}, {"buffer_type", "i"}, {"rank_groups", {{{"size", 2}, {"ranks", {0, 1}}}}}});
    gpu["threadblocks"][0]["channels"].push_back({{"channel_type", "switch"}, {"channel_ids", {0}}});
  }
  const Plan plan = read_plan(json.dump());
  ASSERT_TRUE(prove(plan).is_proved);
  EXPECT_EQ(error_of<Error>([&] {
              tasks_of(plan, {100, 1e9});
            }),
            "rank 0, thread block 0, operation 3 (glres) goes through a switch, which reads or writes the memory of "
            "several ranks at once: a trace has only messages from one rank to another");
}

TEST(PlanAsTasks, ChunksOfUnequalSizeAreRefused) {
  using param_sync::traces::WrongSize;
  EXPECT_EQ(error_of<WrongSize>([] {
              tasks_of(ring(3), {7, 1e9});
            }),
            "28 bytes cannot be cut into 3 chunks of whole floats: give a multiple of 12 bytes, such as 24");
  EXPECT_NE(error_of<WrongSize>([] { tasks_of(ring(3), {0, 1e9}); }), "");
  EXPECT_EQ(error_of([] { tasks_of(ring(3), {6, 1e9}); }), "");
}

TEST(PlanAsTasks, APlanThatDoesNotEndIsRefused) {
  Maker maker(Collective::all_reduce, 2, 1);
  for (int rank = 0; rank < 2; ++rank) maker.block(rank);
  maker.receive(1, maker.connection(0, 1), in(1, 0));
  EXPECT_EQ(
      error_of<Error>([&] {
        tasks_of(maker.plan, {1, 1e9});
      }),
      "rank 1, thread block 0, step 0 (r) does not end, if messages travel as a whole: a trace has no smaller ones");
}

/// An iteration of the pipeline takes 32 MiB of the one chunk.
TEST(PlanAsTasks, PipelinesHaveAsManyIterationsAsTheDataNeed) {
  using param_sync::traces::iterations_for;
  using param_sync::traces::WrongSize;
  const std::string text = pipeline(2).dump();
  const Plan plan = read_plan(text);
  constexpr std::uint64_t kUnit = (1 << 25) / sizeof(float);
  EXPECT_EQ(iterations_for(ring(2), {kUnit, 1e9}), 0);
  EXPECT_EQ(iterations_for(plan, {1, 1e9}), 1);
  EXPECT_EQ(iterations_for(plan, {kUnit, 1e9}), 1);
  EXPECT_EQ(iterations_for(plan, {5 * kUnit, 1e9}), 5);
  EXPECT_NE(error_of<WrongSize>([&] {
              iterations_for(plan, {kUnit + 1, 1e9});
            }).find("33554432 bytes at a time"),
            std::string::npos);
  EXPECT_NE(error_of<WrongSize>([&] {
              iterations_for(plan, {1025 * kUnit, 1e9});
            }).find("more than 1024 iterations"),
            std::string::npos);
  for (const int iterations : {1, 2, 3, 7}) {
    const Plan read = read_plan(text, iterations);
    EXPECT_TRUE(prove(read).is_proved);
    const auto tasks = tasks_of(read, {static_cast<std::uint64_t>(iterations) * kUnit, 1e9});
    EXPECT_EQ(tasks[0].size(), static_cast<std::size_t>(2 * iterations));  // two copies in each
    for (const auto& task : tasks[0]) EXPECT_EQ(task.ns, 1U << 25);
  }
  EXPECT_NE(error_of<Error>([&] { tasks_of(plan, {kUnit, 1e9}); }), "");  // it was read with another number
  Plan parts_of_floats = plan;
  parts_of_floats.iteration_bytes = 6;
  EXPECT_EQ(iterations_for(parts_of_floats, {1, 1e9}), 1);
  EXPECT_NE(error_of<Error>([&] {
              iterations_for(parts_of_floats, {3, 1e9});
            }).find("6 bytes at a time, and a trace has whole floats"),
            std::string::npos);
}

#if PLAN_TRACES_TEST_CHAKRA
/// The lines of GOAL and the nodes of Chakra's traces are the same, with the same dependencies.
TEST(PlanAsChakra, IsWhatIsWrittenAsGoal) {
  for (auto [name, plan] : plans()) {
    if (plan.iteration_bytes != 0) plan.iteration_bytes = kFloatsOfACell * sizeof(float);
    const auto goal = goal_of(plan);
    const auto trace = traces_test::read_chakra(param_sync::traces::to_chakra(tasks_of(plan, {floats_of(plan), 4e9})));
    ASSERT_EQ(trace.size(), goal.size()) << name;
    for (std::size_t rank = 0; rank < goal.size(); ++rank) {
      ASSERT_EQ(trace[rank].size(), goal[rank].size()) << name;
      for (std::size_t i = 0; i < goal[rank].size(); ++i) {
        const GoalOp &line = goal[rank][i], &node = trace[rank][i];
        EXPECT_EQ(node.what, line.what) << name;
        EXPECT_EQ(node.peer, line.peer) << name;
        EXPECT_EQ(node.tag, line.tag) << name;
        EXPECT_EQ(node.size, line.what == "calc" ? (line.size + 500) / 1000 : line.size) << name;
        EXPECT_EQ(node.ended, line.ended) << name;
        EXPECT_EQ(node.started, line.started) << name;
      }
    }
  }
}
#endif

}  // namespace
