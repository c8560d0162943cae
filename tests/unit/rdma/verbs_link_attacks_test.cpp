// A peer that lies on the verbs link loses its own connection.
#include "tests/unit/rdma/verbs_link_fixture.hpp"

namespace gpusock::proxy::verbs::link_test {
namespace {

TEST_F(VerbsLinkTest, ALyingPositionEndsThatConnection) {
  for (const Where& where : {kHost, kDirect}) {
    connect(65536, 4096, 0, where);
    step_both(2);
    *words(*b_).arrived += 4097;
    step_both(1);
    EXPECT_EQ(b_->heard.failed, EPROTO);
    EXPECT_EQ(b_->rx.readable(), where.placement == RingPlacement::device ? 0u : ringbuf::kRingCorrupt)
        << "a lie is not passed on";
  }
}

/// There is room for it, but the peer cannot know that yet.
TEST_F(VerbsLinkTest, ALyingPeerThatDoesNotWaitForCreditLosesThatConnection) {
  connect(65536, 4096);
  a_->send(100);
  step_both(2);
  b_->receive(100);
  *words(*b_).arrived = 4097;
  b_->step();
  EXPECT_EQ(b_->heard.failed, EPROTO);
}

TEST_F(VerbsLinkTest, APositionThatGoesBackEndsThatConnection) {
  for (const Where& where : {kHost, kDirect}) {
    connect(65536, 4096, 0, where);
    a_->send(100);
    step_both(2);
    b_->receive(100);
    *words(*b_).arrived -= 1;
    step_both(1);
    EXPECT_EQ(b_->heard.failed, EPROTO);
  }
}

TEST_F(VerbsLinkTest, LyingCreditEndsThatConnection) {
  connect(65536, 65536);
  a_->send(100);
  step_both(2);
  *words(*a_).credit = 101;
  a_->step();
  EXPECT_EQ(a_->heard.failed, EPROTO);
}

TEST_F(VerbsLinkTest, CreditThatGoesBackEndsThatConnection) {
  connect(65536, 65536);
  a_->send(100);
  step_both(2);
  b_->receive(100);
  step_both();
  *words(*a_).credit = 99;
  a_->step();
  EXPECT_EQ(a_->heard.failed, EPROTO);
}

TEST_F(VerbsLinkTest, KeysCoverOneRingAndItsWords) {
  for (const Where& where : {kHost, kDirect}) {
    connect(65536, 4096, 0, where);
    expect_narrow_keys();
    fake::nic().calls.clear();
  }
}

}  // namespace
}  // namespace gpusock::proxy::verbs::link_test
