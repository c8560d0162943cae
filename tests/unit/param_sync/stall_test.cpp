// Who held up a run, by what its nodes tell when they have waited for too long.
#include "report/lane_stall.hpp"
#include "report/loss.hpp"
#include "report/stall.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace param_sync {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Wait = Stall::Wait;

TEST(Stall, ProgressComesThroughTheChannelAsItWas) {
  const StepProgress told{2, {1, 2, 3}, 4, {5, 6, 7}};
  const StepProgress heard = step_progress_from(nlohmann::json::parse(to_json(told).dump()));
  EXPECT_EQ(heard.rank, 2);
  EXPECT_EQ(heard.positions, told.positions);
  EXPECT_EQ(heard.first_step, 4u);
  EXPECT_EQ(heard.sample, told.sample);
}

Losses told_of(const std::vector<Loss::Cause>& causes) {
  Losses losses;
  for (const Loss::Cause cause : causes) losses.add(loss_from(nlohmann::json::parse(to_json(Loss{cause}).dump())));
  return losses;
}

// A node that waited for too long tells its peers, and they end at once: what they tell may be read first.
TEST(Losses, TheFirstNodeThatKnowsTheCauseDecidesWhetherTheRunStalled) {
  using enum Loss::Cause;
  EXPECT_TRUE(told_of({stalled, unknown, unknown}).stalled());
  EXPECT_TRUE(told_of({unknown, unknown, stalled}).stalled());
  EXPECT_TRUE(told_of({unknown, stalled, lost}).stalled());
  EXPECT_FALSE(told_of({unknown, lost, stalled}).stalled());
  EXPECT_FALSE(told_of({lost, stalled}).stalled());
  EXPECT_FALSE(told_of({unknown, unknown}).stalled());
  EXPECT_FALSE(told_of({}).stalled());
}

// Who tells nothing may wait for another that tells nothing.
TEST(Stall, SaysThatItCannotBeKnownWhereSeveralTellNothing) {
  const Stall stall{Wait::gradients, 3, 0, 1, {0, 1}, false};
  EXPECT_THAT(describe(stall, 1.5),
              StartsWith("no progress for 1.5 s because of at least one of the ranks 0 and 1 (which of them only "
                         "waited for another cannot be known): rank 3 waited for rank 0's gradients of step 2;"));
}

/// One layer of 40 parameters, which a ring of four exchanges. Each rank has four lanes of three ops: it sends parts
/// and adds them, passes sums on and takes them.
ExchangePlan ring_plan() {
  Config config;
  config.nodes = 4;
  config.scheme = "ring";
  return make_exchange_plan(config, make_layout(std::vector<std::uint32_t>{4, 8}, 4));
}

/// A rank that has sent and received so many messages, six of each in a step.
StepProgress at(int rank, std::uint64_t sent, std::uint64_t received) {
  const auto parts = [](std::uint64_t all) { return all / 6 * 3 + std::min<std::uint64_t>(all % 6, 3); };
  StepProgress report{rank};
  report.positions = {parts(sent), parts(received), sent - parts(sent), received - parts(received)};
  return report;
}

// Rank 1 stopped in the second step, when it had sent two messages of it. Rank 2 lacks the third one; the others lack
// what follows from that.
TEST(LaneStall, FollowsTheRingToTheSilentRank) {
  const Stall stall = find_lane_stall(ring_plan(), {at(0, 6 + 5, 6 + 4), at(3, 6 + 4, 6 + 3), at(2, 6 + 3, 6 + 2)}, 4);
  EXPECT_THAT(stall.suspects, ElementsAre(1));
  EXPECT_THAT(describe(stall, 1.5), HasSubstr("rank 1 has made no progress for 1.5 s: rank 2 waited for rank 1's "
                                              "gradients of step 2"));
}

// All report; rank 1 says that it has sent what rank 2 lacks.
TEST(LaneStall, NamesTheConnectionWhereAllHaveReported) {
  const Stall stall = find_lane_stall(ring_plan(), {at(0, 5, 4), at(1, 3, 2), at(2, 3, 2), at(3, 4, 3)}, 4);
  EXPECT_THAT(stall.suspects, ElementsAre(1));
  EXPECT_THAT(describe(stall, 1.5), StartsWith("rank 1, or its connection with rank 2, has made no progress"));
}

// Its kernels have not come to the second step.
TEST(LaneStall, NamesTheRankWhoseGradientsAreNotComputed) {
  const Stall stall = find_lane_stall(ring_plan(), {at(0, 9, 8), at(1, 6, 6), at(2, 7, 6), at(3, 8, 7)}, 4);
  EXPECT_THAT(stall.suspects, ElementsAre(1));
}

// Rank 2 has the sum of its part, and its first one to pass on does not fit into the ring to rank 3.
TEST(LaneStall, ALaneThatBeginsAfterAnotherMayWaitForRoom) {
  const Stall stall = find_lane_stall(ring_plan(), {at(2, 3, 3), at(0, 4, 4), at(1, 5, 4)}, 4);
  EXPECT_THAT(stall.suspects, ElementsAre(3));
  EXPECT_THAT(describe(stall, 1.5), HasSubstr("rank 2 waited for rank 3 to take gradients of step 1"));
}

// Rank 3 would let rank 0 send of the first layer, but its only credit is taken: rank 1 has not sent of the second one.
TEST(LaneStall, ALaneThatWaitsForACreditWaitsForTheRankThatHasIt) {
  Config config;
  config.nodes = 4;
  config.scheme = "ps:even";
  config.credits = 1;
  const ExchangePlan plan = make_exchange_plan(config, make_layout(std::vector<std::uint32_t>{4, 8, 2}, 4));
  // By layer: what it adds and publishes, what it pulls, grants, and pushes to three owners.
  const auto waiting = [](int rank, std::uint64_t added, std::uint64_t granted) {
    StepProgress report{rank};
    report.positions = {7, 3, 3, 2, 2, 2, 7 + added, 3, 3 + granted, 2, 2, 2};
    return report;
  };
  const Stall stall = find_lane_stall(plan, {waiting(3, 1, 2), waiting(0, 0, 0), waiting(2, 0, 0)}, 4);
  EXPECT_THAT(stall.suspects, ElementsAre(1));
  EXPECT_EQ(stall.waiting, 3);
}

// Rank 0 owns the first layer and the last one. It makes the last one's weights first, and rank 1 has not sent the
// factors that they are made of.
TEST(LaneStall, AnOwnerThatLacksFactorsIsNotBlamed) {
  Config config;
  config.nodes = 2;
  config.scheme = "adam-fc";
  const ExchangePlan plan = make_exchange_plan(config, make_layout(std::vector<std::uint32_t>{4, 8, 2, 4}, 2));
  StepProgress report{0};
  report.positions = {1, 0, 1, 0, 0, 0};  // by layer: factors, weights
  const Stall stall = find_lane_stall(plan, {report}, 2);
  EXPECT_THAT(stall.suspects, ElementsAre(1));
  EXPECT_THAT(describe(stall, 1.5), HasSubstr("rank 0 waited for rank 1's gradients of step 1"));
  EXPECT_THAT(describe_lanes_alone(plan, report, 1.5), HasSubstr("in vain for rank 1's gradients of step 1"));
}

// The peer makes weights of its own gradients, too: that they do not come may only follow from that these do not.
TEST(LaneStall, OneNodeThatLacksGradientsDoesNotTellOfWeights) {
  Config config;
  config.nodes = 2;
  const ExchangePlan plan = make_exchange_plan(config, make_layout(std::vector<std::uint32_t>{4, 8}, 2));
  StepProgress report{0};
  report.positions = {1, 0, 0};  // what it has pushed, added and applied, pulled
  const std::string told = describe_lanes_alone(plan, report, 1.5);
  EXPECT_THAT(told, StartsWith("rank 0: waited 1.5 s in vain for rank 1's gradients of step 1. Who owes that"));
  report.positions = {1, 3, 0};
  EXPECT_THAT(describe_lanes_alone(plan, report, 1.5), HasSubstr("in vain for rank 1's new weights of step 1. "));
}

TEST(LaneStall, OneNodeTellsWhatItHasWaitedFor) {
  EXPECT_THAT(describe_lanes_alone(ring_plan(), at(2, 7, 6), 1.5),
              StartsWith("rank 2: waited 1.5 s in vain for rank 1's gradients of step 2. Who owes that"));
}

}  // namespace
}  // namespace param_sync
