#include "report/report.hpp"
#include "report/hold_up.hpp"

#include "tests/support/error_of.hpp"
#include "tests/support/folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sstream>

namespace param_sync {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

NodeReport node_report(int rank) {
  NodeReport report;
  report.rank = rank;
  report.train_s = 2;
  report.steps = 4;
  report.layers = {{100, 200, 300, 400}, {1, 2, 3, 4}};
  report.communicating_ns = 1000;
  report.exposed_ns = 250;
  report.step_waited_ns = {100, 0, 50, 100};
  report.host_api_calls = 40;
  report.p2p_tx_bytes = 500;
  report.fabric_tx_bytes = 2'000'000;
  report.weights_hash = 0xfedcba9876543210u;
  report.losses = {4, 3, 2, static_cast<float>(rank)};
  if (rank == 0) report.accuracies = {0.5, 0.75};
  return report;
}

RunReport run_report() {
  RunReport run;
  run.config.nodes = 2;
  run.config.batch = 10;
  run.config.epochs = 2;
  run.layout = make_layout(std::vector<std::uint32_t>{4, 3, 2}, 2);
  run.device = "cpu";
  run.nodes = {node_report(0), node_report(1)};
  return run;
}

TEST(Report, ANodesReportSurvivesJson) {
  const NodeReport before = node_report(0);
  const NodeReport after = node_report_from(nlohmann::json::parse(to_json(before).dump()));
  EXPECT_EQ(to_json(after), to_json(before));
  EXPECT_EQ(after.weights_hash, before.weights_hash);
  EXPECT_EQ(after.losses, before.losses);
}

TEST(Report, AddsUpTheNodes) {
  const RunReport run = run_report();
  EXPECT_DOUBLE_EQ(run.samples_per_s(), 4 * 10 * 2 / 2.0);
  EXPECT_DOUBLE_EQ(run.hidden_share(), 0.75);
  EXPECT_EQ(run.losses(), (std::vector<float>{4, 3, 2, 0.5f}));
  const nlohmann::json json = run.json();
  EXPECT_EQ(json.at("layers").at(0).at("pushed_bytes"), 200);
  EXPECT_EQ(json.at("layers").at(1).at("pulled_bytes"), 4);
  EXPECT_EQ(json.at("p2p_tx_bytes"), 1000);
  EXPECT_EQ(json.at("fabric_tx_bytes"), 4'000'000);
  EXPECT_DOUBLE_EQ(json.at("host_api_calls_per_step"), 10);
  EXPECT_DOUBLE_EQ(json.at("accuracy"), 0.75);
}

/// Of two epochs of two steps, the second step of each counts.
TEST(Report, SharesOfAPoolLeaveOutStepsAfterAnEvaluation) {
  RunReport run = run_report();
  EXPECT_TRUE(run.json().at("device_pool").is_null());
  EXPECT_THAT(run.summary(), Not(HasSubstr("device pool")));
  run.config.device_pool_bytes = 4096;
  for (NodeReport& node : run.nodes) {
    node.step_times_ns = {0, 100, 900, 1000};
    node.step_copying_ns = {7, 20, 7, 20};
    node.step_stalled_ns = {9, 10, 9, 0};
    node.staged_bytes = 4 * 3'000'000;
  }
  const nlohmann::json pool = run.json().at("device_pool");
  EXPECT_EQ(pool.at("bytes"), 4096);
  EXPECT_EQ(pool.at("staged_bytes_per_step"), 3'000'000);
  EXPECT_DOUBLE_EQ(pool.at("copying_share"), 0.2);
  EXPECT_DOUBLE_EQ(pool.at("stall_share"), 0.05);
  EXPECT_THAT(run.summary(),
              HasSubstr("device pool 4096 bytes: weights of 3.00 MB staged in a step of a node, in 20.0 % "
                        "of the time; steps waited for the pool 5.0 % of it\n"));
}

TEST(Report, HoldsThePricesBySchemesThatUseThem) {
  RunReport run = run_report();
  EXPECT_TRUE(run.json().at("prices").is_null());
  run.config.scheme = "ring,auto";
  run.config.prices = {38.25, 0, 1e6, 9.5, 0.001};
  EXPECT_EQ(run.json().at("prices"), "38.25,0,1000000,9.5,0.001");
}

TEST(Report, NamesTheDataAndTheModelAndSaysWhatTheNodesDid) {
  RunReport run = run_report();
  run.config.data = "/somewhere/images";
  EXPECT_THAT(run.summary(),
              HasSubstr("data images, model 4 x 3 x 2, 23 parameters\n2 nodes: each computed gradients"));
  run.config.serial = true;
  EXPECT_THAT(run.summary(), HasSubstr("one process computed the gradients of 2 nodes"));
  run.config.serial = false;
  run.config.nodes = 1;
  EXPECT_THAT(run.summary(), HasSubstr("one node trained"));
}

TEST(Report, NoticesWeightsThatDiffer) {
  RunReport run = run_report();
  EXPECT_TRUE(run.same_weights());
  run.nodes[1].weights_hash ^= 1;
  EXPECT_FALSE(run.same_weights());
  EXPECT_THAT(run.summary(), HasSubstr("DIFFERENT"));
}

TEST(Report, WritesAccuracyWhereAnEpochEnds) {
  gpusock::test::Folder folder;
  RunReport run = run_report();
  run.config.series_file = folder.path() / "series.tsv";
  run.config.data = "/somewhere/images/";
  for (NodeReport& node : run.nodes) {
    node.layers = {{999'000, 0, 0, 0}, {1'000, 0, 0, 0}};
    node.step_waited_ns = {100'000, 0, 50'000, 100'000};
    if (&node == &run.nodes[1]) node.step_waited_ns = {300'000, 0, 50'000, 20'000};
    node.step_times_ns = {0, 250'000'000, 500'000'000, 750'000'000};
  }
  run.write_files();
  std::ifstream file(run.config.series_file);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(),
            "# step\tloss\ttest_accuracy\tpushed_mb\twaited_ms\tseconds\tslowest\theld_up_ms\n"
            "# data images, model 4 x 3 x 2, 2 nodes\n"
            "1\t4.000000\tnan\t0.500000\t0.200000\t0.000000\t0\t0.200000\n"
            "2\t3.000000\t0.500000\t1.000000\t0.000000\t0.250000\t0\t0.000000\n"
            "3\t2.000000\tnan\t1.500000\t0.050000\t0.500000\t0\t0.000000\n"
            "4\t0.500000\t0.750000\t2.000000\t0.060000\t0.750000\t1\t0.080000\n");
}

/// In single steps chance decides. In all of them together node 1 has waited longer.
TEST(Report, NamesTheNodeThatHoldsTheOthersUp) {
  RunReport run = run_report();
  run.nodes[0].step_waited_ns = {0, 100'000'000, 0, 0};
  run.nodes[1].step_waited_ns = {800'000'000, 0, 700'000'000, 0};
  run.nodes[0].train_s = 2;
  EXPECT_EQ(run.hold_up().rank, 0);
  EXPECT_DOUBLE_EQ(run.hold_up().held, 1.4);
  EXPECT_DOUBLE_EQ(share_of_steps(run.hold_ups(), 0), 0.75);
  EXPECT_THAT(run.summary(),
              HasSubstr("slowest: rank 0 held the others up for 1.4 s of 2.0 s, in 75 % of the steps\n"));
  EXPECT_EQ(run.json()["slowest"]["rank"], 0);
  run.nodes[1].step_waited_ns = {10'000'000, 0, 0, 0};
  EXPECT_THAT(run.summary(), Not(HasSubstr("slowest")));
  run.nodes.pop_back();
  EXPECT_TRUE(run.json()["slowest"].is_null());
}

/// Nodes say how long they have waited at times of their own.
TEST(HoldUps, AreThoseOfTheLastSecond) {
  HoldUpNow now;
  EXPECT_EQ(now.of(2).rank, -1);
  now.note(0, 0.5, 0.5);  // too short to say anything
  now.note(0, 1, 1);
  EXPECT_EQ(now.of(2).rank, -1);
  now.note(1, 0.1, 1.25);
  EXPECT_EQ(now.of(2).rank, 1);
  EXPECT_DOUBLE_EQ(now.of(2).held, 1 - 0.1 / 1.25);
  now.note(0, 1, 2);
  now.note(1, 1.1, 2.25);
  EXPECT_EQ(now.of(2).rank, 0);
  EXPECT_DOUBLE_EQ(now.of(2).held, 1);
  now.note(0, 0, 0.1);  // a view with other nodes has begun
  EXPECT_EQ(now.of(2).rank, -1);
}

TEST(Report, SaysWhichFileCannotBeWritten) {
  RunReport run = run_report();
  run.config.json_file = "/nonexistent/out.json";
  EXPECT_THAT(gpusock::test::error_of([&] { run.write_files(); }), HasSubstr("/nonexistent/out.json"));
}

}  // namespace
}  // namespace param_sync
