// The prover beside a search of all orders, on plans that are wrong by chance.
#include "maker.hpp"
#include "oracle.hpp"

#include "foreign/prove.hpp"

#include <gtest/gtest.h>

#include <random>

namespace {

using namespace foreign_test;

constexpr std::size_t kStatesMax = 1500;

TEST(ForeignOracle, RightPlansAreRightInAllOrders) {
  for (const Plan& plan : right_plans()) {
    const Proof proof = prove(plan);
    EXPECT_TRUE(proof.is_proved) << proof.why;
    const auto outcome = all_orders(plan, 100'000);
    ASSERT_TRUE(outcome);
    EXPECT_TRUE(outcome->is_right());
    EXPECT_GT(outcome->states, 10U);
  }
}

/// What is proved is right in all orders. What is refuted, but for races, is wrong in some order. (A race can be
/// without harm, as two equal writes are.)
TEST(ForeignOracle, MutantsThatAreProvedAreRightInAllOrders) {
  const std::vector<Plan> plans = right_plans();
  int proved = 0, refuted = 0, races = 0, harmful_races = 0, not_understood = 0;
  for (unsigned seed = 0; seed < 700; ++seed) {
    std::mt19937 random(seed);
    Plan plan = plans[seed % plans.size()];
    for (unsigned changes = 0; changes <= seed % 3; ++changes) mutate(plan, random);
    if (!could_be_read(plan)) continue;
    const auto outcome = all_orders(plan, kStatesMax);
    if (!outcome) continue;
    Proof proof;
    try {
      proof = prove(plan);
    } catch (const Error&) {
      ++not_understood;
      continue;
    }
    const bool is_race = proof.why.find("race: ") != std::string::npos;
    if (proof.is_proved) {
      EXPECT_TRUE(outcome->is_right()) << "seed " << seed << " is proved, but fails in some order";
      ++proved;
    } else if (is_race) {
      ++races;
      harmful_races += outcome->is_right() ? 0 : 1;
    } else {
      EXPECT_FALSE(outcome->is_right()) << "seed " << seed << " is right in all orders, but: " << proof.why;
      const bool is_hang = proof.why.find("deadlock: ") != std::string::npos;
      EXPECT_TRUE(!is_hang || outcome->may_hang) << "seed " << seed << ": " << proof.why;
      ++refuted;
    }
  }
  EXPECT_GT(proved, 100);
  EXPECT_GT(refuted, 100);
  EXPECT_GT(harmful_races, 10);
  EXPECT_LT(not_understood, 20);
  RecordProperty("proved", proved);
  RecordProperty("refuted", refuted);
  RecordProperty("races", races);
  RecordProperty("harmful_races", harmful_races);
}

}  // namespace
