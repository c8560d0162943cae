// Ranks agree in a simulated network. A seed gives the same run again:
//   GPUSOCK_TEST_SEEDS=FIRST..LAST build/host/tests/unit/membership/membership_test
//   --gtest_filter=MembershipSimulation.*
#include "tests/support/sanitized.hpp"
#include "tests/support/seeds.hpp"
#include "tests/unit/membership/world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace membership_test {
namespace {

TEST(MembershipSimulation, NoTwoViewsGoOn) {
  const gpusock::Seeds range = gpusock::seeds_or({1, gpusock::kThreadSanitized ? 100 : 2'000});
  std::uint64_t views = 0, joined = 0;
  for (std::uint64_t seed = range.first; seed <= range.last; ++seed) {
    World world(seed, Fault::none);
    ASSERT_EQ(world.run(), "") << "GPUSOCK_TEST_SEEDS=" << seed << " runs it again: " << world.nodes() << " ranks";
    views += static_cast<std::uint64_t>(world.views()) - 1;
    joined += static_cast<std::uint64_t>(world.joined());
  }
  EXPECT_GE(2 * joined, range.last - range.first) << "ranks join too seldom to show anything";
  EXPECT_GE(views, range.last - range.first) << "the ranks agree too seldom to show anything";
}

/// After one loss those that are left go on, if they may: all of them, and soon if the others have ended.
TEST(MembershipSimulation, ThoseThatAreLeftGoOn) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    World crashed(seed, Fault::none);
    ASSERT_EQ(crashed.run_calm(seed * 0x9e3779b97f4a7c15u >> 40, false), "") << "seed " << seed;
    World paused(seed, Fault::none);
    ASSERT_EQ(paused.run_calm(seed * 0x9e3779b97f4a7c15u >> 40, true), "") << "seed " << seed;
  }
}

/// Two coordinators at the same time: one of them sends its callers to the other one.
TEST(MembershipSimulation, ALateLowestRankIsNotLeftOut) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    ASSERT_EQ(World(seed, Fault::none).run_late(), "") << "seed " << seed;
  }
}

/// Ranks join with the next view, but not more than there were. If all of them are lost, the others go on.
TEST(MembershipSimulation, RanksJoin) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const int joiners = 1 + static_cast<int>(seed % 12);
    ASSERT_EQ(World(seed, Fault::none).run_join(joiners, false), "") << "seed " << seed;
    ASSERT_EQ(World(seed, Fault::none).run_join(joiners, true), "") << "seed " << seed;
  }
}

/// If two ranks cannot connect to each other, the higher one is left out; if one rank lacks several, that one, also
/// if it is the lowest one.
TEST(MembershipSimulation, RanksThatCannotConnectAreLeftOut) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const int nodes = World(seed, Fault::none).nodes();
    const Ids all = only(nodes) - 1;
    const int first = static_cast<int>(seed) % nodes, other = (first + 1 + static_cast<int>(seed / 7) % 3) % nodes;
    if (first != other) {
      const Ids higher = only(std::max(first, other));
      ASSERT_EQ(World(seed, Fault::none).run_unconnected(first, only(other), seed % 2 == 0, higher), "") << seed;
    }
    if (nodes > 2) {
      ASSERT_EQ(World(seed, Fault::none).run_unconnected(first, all & ~only(first), true, only(first)), "") << seed;
    }
  }
}

/// The first seed with an objection, or 0.
std::uint64_t found(Fault fault) {
  for (std::uint64_t seed = 1; seed <= 3'000; ++seed) {
    if (!World(seed, fault).run().empty()) return seed;
  }
  return 0;
}

TEST(MembershipSimulation, FindsFaultsThatArePlanted) {
  for (const Fault fault : {Fault::no_majority, Fault::any_half, Fault::hides_newer_views, Fault::forgets_undecided,
                            Fault::enters_at_proposal, Fault::joiners_vote, Fault::gives_ids_again}) {
    const std::uint64_t seed = found(fault);
    EXPECT_NE(seed, 0) << "fault " << static_cast<int>(fault);
    RecordProperty("seed_of_fault_" + std::to_string(static_cast<int>(fault)), std::to_string(seed));
  }
}

}  // namespace
}  // namespace membership_test
