// Which view's weights the nodes take that go on. Numbers of views only grow; 0: the node was not there.
#include "plan/held_views.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace param_sync {
namespace {

HeldOutline::OfView view(std::uint64_t number, std::uint64_t clock, std::uint64_t nodes = 3) {
  return {number, number == 0 ? 0 : nodes, 10 * number, clock};
}

HeldOutline joins() { return {view(0, 0), view(0, 0)}; }

/// The numbers of the views, in the order in which nodes take them.
std::vector<std::uint64_t> chosen(const std::vector<HeldOutline>& nodes) {
  std::vector<std::uint64_t> numbers;
  for (const ChosenView& view : choose_views(nodes)) numbers.push_back(view.view);
  return numbers;
}

using Numbers = std::vector<std::uint64_t>;

TEST(HeldViews, AfterALossAllTakeTheNewestOne) {
  const HeldOutline node{view(0, 0), view(1, 7)};
  EXPECT_EQ(chosen({node, {view(0, 0), view(1, 8)}}), Numbers{1});
  const ChosenView view_of_all = choose_views(std::vector{node, node}).front();
  EXPECT_EQ(view_of_all.nodes, 3);
  EXPECT_EQ(view_of_all.first_step, 10);
}

TEST(HeldViews, OneThatHasStepsIsTheOnlyOne) {
  EXPECT_EQ(chosen({{view(1, 7), view(2, 1)}, {view(0, 0), view(1, 7)}}), Numbers{2});
}

TEST(HeldViews, OneThatSomeHaveNotBegunHasNoSteps) {
  EXPECT_EQ(chosen({{view(1, 7), view(2, 0)}, {view(0, 0), view(1, 7)}}), Numbers{1});
}

/// All have begun it: but those that were lost meanwhile may have owned parts of it. The one before has the same
/// weights.
TEST(HeldViews, OneWithoutStepsMayBeReplacedByTheOneBefore) {
  const HeldOutline node{view(1, 7), view(2, 0)};
  EXPECT_EQ(chosen({node, node}), (Numbers{2, 1}));
  EXPECT_EQ(chosen({{view(0, 0), view(1, 0)}, {view(0, 0), view(1, 0)}}), Numbers{1}) << "there is none before";
}

TEST(HeldViews, NodesThatJoinHaveNothing) {
  EXPECT_EQ(chosen({{view(0, 0), view(1, 7)}, joins()}), Numbers{1});
  EXPECT_EQ(chosen({{view(1, 7), view(2, 0)}, joins(), {view(1, 7), view(2, 0)}}), (Numbers{2, 1}));
  EXPECT_EQ(chosen({{view(1, 7), view(2, 0)}, joins(), {view(0, 0), view(1, 7)}}), Numbers{1});
}

}  // namespace
}  // namespace param_sync
