// Which coordinates the scheduler of examples/scheduled_lasso chooses, and the samples that it is for.
#include "examples/scheduled_lasso/problem.hpp"
#include "examples/scheduled_lasso/schedule.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

namespace lasso {
namespace {

constexpr float kDependenceMax = 0.15f;
constexpr std::uint32_t kFeatures = 60, kGroups = 2, kGroupFeatures = 15;  // of a group; half of all are in no group

Shape shape_of(std::uint64_t seed) {
  return {.samples = 403, .features = kFeatures, .groups = kGroups, .group_features = kGroupFeatures, .seed = seed};
}

/// A scheduler with the memory that it works with.
struct Chooser {
  explicit Chooser(Policy policy, std::uint64_t seed = 1, unsigned parallel = 8) : problem(make(shape_of(seed))) {
    own = {policy,
           parallel,
           kDependenceMax,
           0.01f,
           problem.samples,
           problem.features,
           problem.columns.data(),
           priorities.data(),
           candidates.data(),
           are_dependent.data(),
           &state};
    state = seed;
  }
  std::vector<std::uint32_t> next() {
    Set set;
    schedule(gpusock::this_thread(), own, set);
    return {set.of, set.of + set.count};
  }
  /// |x_j . x_k|, in another way than the scheduler computes it.
  double dependence(std::uint32_t one, std::uint32_t other) const {
    double product = 0;
    for (std::uint32_t i = 0; i < problem.samples; ++i) {
      product += double{problem.columns[std::size_t{one} * problem.samples + i]} *
                 problem.columns[std::size_t{other} * problem.samples + i];
    }
    return std::fabs(product);
  }
  double largest_dependence(const std::vector<std::uint32_t>& set) const {
    double largest = 0;
    for (std::size_t i = 0; i < set.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) largest = std::max(largest, dependence(set[i], set[k]));
    }
    return largest;
  }

  Problem problem;
  std::vector<float> priorities = std::vector<float>(kFeatures, kNeverChanged);
  std::vector<std::uint32_t> candidates = std::vector<std::uint32_t>(kCandidatesMax);
  std::vector<unsigned char> are_dependent = std::vector<unsigned char>(kCandidatesMax * kCandidatesMax);
  std::uint64_t state = 1;
  Scheduler own;
};

/// Sets, each followed by changes: large ones of the coordinates of the first group, small ones of the others.
std::vector<std::vector<std::uint32_t>> sets_of(Chooser& chooser, int count) {
  std::vector<std::vector<std::uint32_t>> sets;
  for (int i = 0; i < count; ++i) {
    sets.push_back(chooser.next());
    for (const std::uint32_t one : sets.back()) note_change(chooser.own, one, one < kGroupFeatures ? -2.0f : 0.1f);
  }
  return sets;
}

TEST(Schedule, CoordinatesOfASetDoNotDependOnEachOther) {
  for (const Policy policy : {Policy::strads, Policy::uniform}) {
    for (const std::uint64_t seed : {1, 2, 3}) {
      Chooser chooser(policy, seed);
      for (const auto& set : sets_of(chooser, 300)) {
        ASSERT_GE(set.size(), 1u);
        ASSERT_LE(set.size(), 8u);
        ASSERT_LT(chooser.largest_dependence(set), kDependenceMax + 1e-5);  // 1 if a coordinate were there twice
      }
    }
  }
}

TEST(Schedule, WithoutTheTestTheyDepend) {
  Chooser chooser(Policy::random);
  int dependent = 0;
  for (const auto& set : sets_of(chooser, 300)) {
    EXPECT_EQ(set.size(), 8u);
    EXPECT_EQ(std::set<std::uint32_t>(set.begin(), set.end()).size(), 8u);
    dependent += chooser.largest_dependence(set) > 0.5 ? 1 : 0;
  }
  EXPECT_GT(dependent, 150);
}

TEST(Schedule, EachCoordinateHasItsTurn) {
  for (const Policy policy : {Policy::strads, Policy::uniform, Policy::random, Policy::serial}) {
    Chooser chooser(policy);
    std::set<std::uint32_t> seen;
    for (const auto& set : sets_of(chooser, 300)) seen.insert(set.begin(), set.end());
    EXPECT_EQ(seen.size(), kFeatures) << static_cast<int>(policy);
  }
}

TEST(Schedule, CoordinatesThatHaveChangedMuchComeMoreOften) {
  int turns[2] = {};  // of the first group
  for (const Policy policy : {Policy::strads, Policy::uniform}) {
    Chooser chooser(policy, 1, 1);
    for (const auto& set : sets_of(chooser, 2'000)) {
      turns[policy == Policy::uniform] += static_cast<int>(
          std::count_if(set.begin(), set.end(), [](std::uint32_t one) { return one < kGroupFeatures; }));
    }
  }
  // 15 of 60 coordinates, whose priorities are 2.01 instead of 0.11.
  EXPECT_NEAR(turns[0], 2'000 * (15 * 2.01) / (15 * 2.01 + 45 * 0.11), 100);
  EXPECT_NEAR(turns[1], 2'000 * 0.25, 100);
}

TEST(Schedule, DrawsInProportionToPrioritiesAndEachOnce) {
  Chooser chooser(Policy::strads);
  std::vector<int> drawn(kFeatures);
  for (std::uint32_t i = 0; i < kFeatures; ++i) chooser.priorities[i] = i < 4 ? static_cast<float>(i + 1) : 1e-9f;
  const std::vector<float> before = chooser.priorities;
  for (int i = 0; i < 20'000; ++i) {
    draw(chooser.own, 1);
    ++drawn[chooser.candidates[0]];
    ASSERT_EQ(chooser.priorities, before);
  }
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(drawn[i], 2'000 * (i + 1), 200);
  draw(chooser.own, kFeatures);
  std::sort(chooser.candidates.begin(), chooser.candidates.begin() + kFeatures);
  for (std::uint32_t i = 0; i < kFeatures; ++i) EXPECT_EQ(chooser.candidates[i], i);
}

TEST(Schedule, SerialTakesOneAfterTheOther) {
  Chooser chooser(Policy::serial, 0);
  for (std::uint32_t i = 0; i < 2 * kFeatures; ++i) {
    EXPECT_EQ(chooser.next(), std::vector<std::uint32_t>{i % kFeatures});
  }
}

TEST(Schedule, MayAskForMoreCandidatesThanThereAreCoordinates) {
  Chooser chooser(Policy::strads, 1, 50);
  const std::vector<std::uint32_t> set = chooser.next();
  EXPECT_GE(set.size(), 20u);
  EXPECT_LT(chooser.largest_dependence(set), kDependenceMax + 1e-5);
}

TEST(Schedule, EqualSeedsGiveEqualSets) {
  Chooser one(Policy::strads, 7), same(Policy::strads, 7), other(Policy::strads, 7);
  other.state = 8;
  const auto sets = sets_of(one, 50);
  EXPECT_EQ(sets_of(same, 50), sets);
  EXPECT_NE(sets_of(other, 50), sets);
}

TEST(LassoProblem, FeaturesOfAGroupAreNearlyTheSame) {
  const Chooser chooser(Policy::strads);
  for (std::uint32_t one = 0; one < kFeatures; ++one) {
    EXPECT_NEAR(chooser.dependence(one, one), 1, 1e-5);
    for (std::uint32_t other = 0; other < one; ++other) {
      const bool same_group = one < kGroups * kGroupFeatures && one / kGroupFeatures == other / kGroupFeatures;
      EXPECT_NEAR(chooser.dependence(one, other), same_group ? 0.9 : 0, same_group ? 0.05 : 0.25);
    }
  }
}

TEST(LassoProblem, PartsOfRanksAreAllSamples) {
  const Problem all = make(shape_of(1));
  std::vector<float> labels;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const Problem part = part_of(all, rank, 3);
    for (std::size_t feature = 0; feature < kFeatures; ++feature) {
      for (std::size_t i = 0; i < part.samples; ++i) {
        ASSERT_EQ(part.columns[feature * part.samples + i], all.columns[feature * all.samples + labels.size() + i]);
      }
    }
    labels.insert(labels.end(), part.labels.begin(), part.labels.end());
  }
  EXPECT_EQ(labels, all.labels);
}

}  // namespace
}  // namespace lasso
