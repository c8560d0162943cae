// One rank's part in an agreement, message by message: which ids ranks get that join.
#include "param_sync/membership/agreement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

namespace membership_test {
namespace {

using namespace param_sync::membership;

Addresses at_port(std::uint16_t port) {
  Addresses at;
  at.meets.family = at.listens.family = 4;
  at.meets.port = at.listens.port = port;
  return at;
}

/// What a rank of the first view of two knows, if so many ids were given.
Standing standing_of_two(int ids) {
  return {{1, 0b11}, {}, 1, ids, {{0, {at_port(1).meets, {}}}, {1, {at_port(2).meets, {}}}}};
}

std::optional<Message> sent(Agreement& agreement, Kind kind) {
  const auto actions = agreement.take_actions();
  const auto found = std::find_if(actions.begin(), actions.end(), [&](const Agreement::Action& action) {
    return action.what == Agreement::Action::What::send && action.message.kind == kind;
  });
  return found == actions.end() ? std::nullopt : std::optional(found->message);
}

TEST(Agreement, ACoordinatorGivesNoIdThatAMemberKnowsToBeGiven) {
  Standing standing = standing_of_two(2);
  Agreement coordinator(0, at_port(1).listens, standing, 1'000'000);
  coordinator.begin(0);
  Message hello;
  hello.from = 1;
  hello.view = {1, 0b11};
  hello.ids = 5;
  hello.addresses = {at_port(2), at_port(7)};
  coordinator.called(hello, 1);
  const auto proposal = sent(coordinator, Kind::proposal);
  ASSERT_TRUE(proposal);
  EXPECT_EQ(proposal->view.members, 0b100011u);
  EXPECT_EQ(proposal->ids, 6);
  EXPECT_EQ(standing.ids, 6);
}

TEST(Agreement, AMemberRefusesAnIdThatWasGiven) {
  for (const int ids : {2, 3}) {
    Standing standing = standing_of_two(ids);
    Agreement member(1, at_port(2).listens, standing, 1'000'000);
    member.begin(0);
    const auto actions = member.take_actions();
    ASSERT_EQ(actions.size(), 1u);
    Message proposal;
    proposal.kind = Kind::proposal;
    proposal.from = 0;
    proposal.view = {number_after(1, 0), 0b111};
    proposal.base = {1, 0b11};
    proposal.ids = 3;
    proposal.addresses = {at_port(1), at_port(2), at_port(7)};
    member.heard(actions.front().talk, proposal, 1);
    EXPECT_EQ(sent(member, Kind::ack).has_value(), ids == 2);
    EXPECT_EQ(standing.undecided.size(), ids == 2 ? 1u : 0u);
  }
}

}  // namespace
}  // namespace membership_test
