// The prover beside a search of all orders, on plans that are wrong by chance.
#include "maker.hpp"
#include "oracle.hpp"

#include "foreign/prove.hpp"

#include <gtest/gtest.h>

#include <random>

namespace {

using namespace foreign_test;

constexpr std::size_t kStatesMax = 1500;

/// Changes one thing. The plan stays one that could have been read.
void mutate(Plan& plan, std::mt19937& random) {
  const auto below = [&random](std::size_t size) { return static_cast<int>(random() % size); };
  Block& block = plan.blocks[static_cast<std::size_t>(below(plan.blocks.size()))];
  if (block.steps.empty()) return;
  const auto index = static_cast<std::size_t>(below(block.steps.size()));
  Step& step = block.steps[index];
  const auto change = [&](std::vector<Place>& places) {
    if (places.empty()) return;
    Place& place = places[static_cast<std::size_t>(below(places.size()))];
    if (place.buffer == Buffer::scratch || place.buffer == Buffer::packets) return;
    place.cell = below(static_cast<std::size_t>(plan.sizes[0].input - step.count + 1));
  };
  switch (below(9)) {
    case 0:
      block.steps.erase(block.steps.begin() + static_cast<std::ptrdiff_t>(index));
      break;
    case 1:
      std::swap(block.steps[index], block.steps[static_cast<std::size_t>(below(block.steps.size()))]);
      break;
    case 2:
      change(step.from);
      break;
    case 3:
      change(step.to);
      break;
    case 4:
      block.steps.insert(block.steps.begin() + static_cast<std::ptrdiff_t>(index), Step(step));
      break;
    case 5:
      if (step.kind == Kind::await) --step.awaited_step;
      break;
    case 6:
      if (step.from.size() > 1 || step.receives != kNone) step.from.clear();
      break;
    case 7:
      if (step.count == 2) step.count = 1;
      break;
    default:
      if (step.counter != kNone) step.kind = step.kind == Kind::signal ? Kind::wait : Kind::signal;
      break;
  }
}

bool could_be_read(const Plan& plan) {
  for (std::size_t block = 0; block < plan.blocks.size(); ++block) {
    for (const Step& step : plan.blocks[block].steps) {
      if (step.kind == Kind::move && step.from.empty() && step.receives == kNone) return false;
      if (step.kind != Kind::await) continue;
      const auto& awaited = plan.blocks[static_cast<std::size_t>(step.awaited_block)].steps;
      if (step.awaited_step < 0 || static_cast<std::size_t>(step.awaited_step) >= awaited.size()) return false;
    }
  }
  return true;
}

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
