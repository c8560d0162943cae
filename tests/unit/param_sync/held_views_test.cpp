// Which view's weights the nodes take that go on. Numbers of views only grow; 0: the node was not there.
#include "plan/held_views.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace param_sync::held_views_test {
namespace {

/// Of weights.
struct Part {
  std::uint64_t clock = 0;
};
struct Training {
  std::uint64_t view = 0;
  int nodes = 3;
  std::uint64_t first_step = 0;
  ViewOrigin origin;
  std::vector<Part> ranges;
};
using Held = std::vector<Training>;

/// What a node has of a view whose newest range contains so many pushes.
Training view(std::uint64_t number, std::uint64_t clock) {
  return {number, 3, 10 * number, {number - 1, 4, 5}, {{0}, {clock}}};
}

/// The numbers of the views, in the order in which nodes take them.
std::vector<std::uint64_t> chosen(const std::vector<Held>& nodes) {
  std::vector<HeldOutline> outlines;
  for (const Held& node : nodes) outlines.push_back(outline_of(node));
  std::vector<std::uint64_t> numbers;
  for (const ChosenView& view : choose_views(outlines)) numbers.push_back(view.view);
  return numbers;
}

using Numbers = std::vector<std::uint64_t>;
const Held kJoins;

TEST(HeldViews, AfterALossAllTakeTheOneThatTheyHave) {
  EXPECT_EQ(chosen({{view(1, 7)}, {view(1, 8)}}), Numbers{1});
  const ChosenView view_of_all = choose_views(std::vector{outline_of(Held{view(1, 7)})}).front();
  EXPECT_EQ(view_of_all.nodes, 3);
  EXPECT_EQ(view_of_all.first_step, 10);
}

TEST(HeldViews, OneThatHasStepsIsTheFirst) {
  EXPECT_EQ(chosen({{view(1, 7), view(2, 1)}, {view(1, 7)}}), Numbers{2});
  EXPECT_EQ(chosen({{view(2, 0)}, {view(2, 1)}, {view(3, 0)}}), (Numbers{2, 3})) << "some have seen no step of it";
}

/// Its members may not all have begun it, or may be lost. Those that were lost with the view before may not be: the
/// weights are the same.
TEST(HeldViews, OnesWithoutStepsFollow) {
  EXPECT_EQ(chosen({{view(1, 7), view(2, 0)}, {view(1, 7)}}), (Numbers{1, 2}));
  EXPECT_EQ(chosen({{view(1, 0), view(2, 0)}, {view(1, 0), view(4, 0)}}), (Numbers{1, 2, 4})) << "there was no step";
}

TEST(HeldViews, NodesThatJoinHaveNothing) {
  EXPECT_EQ(chosen({{view(1, 7)}, kJoins}), Numbers{1});
  EXPECT_EQ(chosen({kJoins, {view(1, 7), view(2, 0)}}), (Numbers{1, 2}));
  EXPECT_EQ(chosen({kJoins, kJoins}), Numbers{}) << "all that were there before are lost";
}

/// It knows none before its own.
TEST(HeldViews, OneThatOnlyANodeThatJoinsHasBegunIsNotTheFirst) {
  EXPECT_EQ(chosen({{view(1, 7), view(2, 5)}, {view(3, 0)}}), (Numbers{2, 3}));
}

TEST(HeldViews, AreKeptUntilThereIsAStep) {
  Held held;
  keep(held, view(1, 7));
  keep(held, view(2, 0));
  keep(held, view(3, 0));
  EXPECT_EQ(chosen({held}), (Numbers{1, 2, 3}));
  keep(held, view(4, 1));
  EXPECT_EQ(held.size(), 1);
  EXPECT_EQ(chosen({held}), Numbers{4});
}

/// So steps are counted as if a view without steps had not been.
TEST(HeldViews, OneWithoutStepsLeavesItsOriginAsTheOrigin) {
  const ChosenView second = choose_views(std::vector{outline_of(Held{view(2, 3)})}).front();
  EXPECT_EQ(second.after(3).view, 2);
  EXPECT_EQ(second.after(3).nodes, 3);
  EXPECT_EQ(second.after(3).step, 23);
  EXPECT_EQ(second.after(0).view, 1);
  EXPECT_EQ(second.after(0).nodes, 4);
  EXPECT_EQ(second.after(0).step, 5);
  const ChosenView first = choose_views(std::vector{outline_of(Held{view(1, 0)})}).front();
  EXPECT_EQ(first.after(0).view, 1) << "there was none before";
}

/// The first one, and the newest ones, if many views come to nothing.
TEST(HeldViews, OfManyTheFirstAndTheNewestAreKept) {
  Held held;
  keep(held, view(1, 7));
  for (std::uint64_t number = 2; number < 20; ++number) keep(held, view(number, 0));
  EXPECT_EQ(chosen({held}), (Numbers{1, 15, 16, 17, 18, 19}));
}

}  // namespace
}  // namespace param_sync::held_views_test
