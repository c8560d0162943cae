// How connections on the verbs link end: in order, or reset; and nothing is under way then.
#include "tests/unit/rdma/verbs_link_fixture.hpp"

namespace gpusock::proxy::verbs::link_test {
namespace {

TEST_F(VerbsLinkTest, TheEndIsToldAfterTheBytesAndClosingIsOrderly) {
  connect(65536, 65536, 77);
  a_->send(5000);
  a_->link->end_sending();
  step_both(3);
  ASSERT_TRUE(b_->heard.final_position);
  EXPECT_EQ(*b_->heard.final_position, 77u + 5000u);
  EXPECT_EQ(b_->receive(5000), 5000u);
  b_->send(10);
  b_->end();
  step_both();
  EXPECT_TRUE(b_->link->can_destroy());
  EXPECT_TRUE(a_->heard.read_shut_down);
  b_->link.reset();
  a_->step();
  EXPECT_EQ(a_->receive(10), 10u);
  EXPECT_EQ(a_->heard.failed, 0);
  EXPECT_EQ(a_->wrong + b_->wrong, 0u);
}

TEST_F(VerbsLinkTest, WhoClosesGoesWhenThePeerHasHeardIt) {
  connect(65536, 65536);
  step_both(2);
  b_->end();
  b_->step();
  EXPECT_FALSE(b_->link->can_destroy())
      << "what the peer writes now would reset the connection, and with it what it has not heard yet";
  step_both();
  EXPECT_TRUE(b_->link->can_destroy()) << "though the peer's caller has not closed";
  EXPECT_EQ(a_->heard.final_position, 0u);
  EXPECT_TRUE(a_->heard.read_shut_down);
  EXPECT_EQ(a_->heard.failed, 0);
}

TEST_F(VerbsLinkTest, BothMayCloseAtOnce) {
  connect(65536, 65536);
  step_both(2);
  for (Side* side : {&*a_, &*b_}) side->end();
  step_both();
  EXPECT_TRUE(a_->link->can_destroy());
  EXPECT_TRUE(b_->link->can_destroy());
  EXPECT_EQ(a_->heard.failed + b_->heard.failed, 0);
}

TEST_F(VerbsLinkTest, NothingIsUnderWayWhenALinkMayGo) {
  connect(65536, 4096);
  step_both(2);
  fake::nic().holds_work = true;
  a_->send(10'000);
  b_->send(3000);
  for (Side* side : {&*a_, &*b_}) side->link->end_sending();
  bool closed = false;
  for (int turn = 0; !a_->link->can_destroy() || !b_->link->can_destroy(); ++turn) {
    ASSERT_LT(turn, 10'000);
    fake::work(1);
    step_both(1);
    a_->receive(700);
    b_->receive(700);
    if (closed || b_->received != 10'000 || a_->received != 3000) continue;
    for (Side* side : {&*a_, &*b_}) side->end();
    closed = true;
  }
  EXPECT_EQ(fake::work(), 0u) << "a write that comes now finds keys and memory of other connections";
  EXPECT_EQ(a_->heard.failed + b_->heard.failed, 0);
  EXPECT_EQ(a_->wrong + b_->wrong, 0u);
}

TEST_F(VerbsLinkTest, TheEndWaitsUntilAllHasBeenAcknowledged) {
  connect(65536, 65536);
  step_both(2);
  fake::nic().holds_work = true;
  a_->send(10);
  a_->end();
  step_both();
  EXPECT_FALSE(a_->link->finished());
  EXPECT_FALSE(b_->heard.final_position);
  fake::work();
  step_both();
  EXPECT_TRUE(a_->link->finished());
  EXPECT_EQ(b_->heard.final_position, 10u);
}

TEST_F(VerbsLinkTest, APairThatBreaksWhenThePeerHasClosedIsNoFailure) {
  connect(65536, 65536);
  step_both(2);
  b_->end();
  step_both();
  ASSERT_TRUE(b_->link->can_destroy());
  b_->link.reset();
  fake::break_pair(fake::pair_numbers().front(), IBV_WC_RETRY_EXC_ERR);
  a_->send(100);
  a_->end();
  step_both(4);
  EXPECT_EQ(a_->heard.failed, 0);
  EXPECT_TRUE(a_->link->finished());
}

TEST_F(VerbsLinkTest, WhatIsUnderWayToAPeerThatReadsNoMoreIsNotGivenBack) {
  connect(65536, 65536);
  step_both(2);
  fake::nic().holds_work = true;
  a_->send(1000);
  a_->step();
  b_->link->end_receiving();
  b_->step();
  a_->step();
  EXPECT_TRUE(a_->heard.read_shut_down);
  EXPECT_EQ(a_->tx.writable(), 64536u);
  fake::work();
  a_->step();
  EXPECT_EQ(a_->tx.writable(), 65536u);
}

TEST_F(VerbsLinkTest, ABrokenPairResetsTheConnection) {
  connect(65536, 65536);
  step_both(2);
  fake::nic().holds_work = true;
  a_->send(100);
  a_->step();
  fake::break_pair(fake::pair_numbers().front(), IBV_WC_RETRY_EXC_ERR);
  step_both(2);
  EXPECT_EQ(a_->heard.failed, ECONNRESET);
  EXPECT_FALSE(a_->maker->wants_polling());
}

TEST_F(VerbsLinkTest, ThePeersEndOfTheStreamBreakingResetsTheConnection) {
  connect(65536, 65536);
  step_both(2);
  b_->link.reset();
  a_->step();
  EXPECT_EQ(a_->heard.failed, ECONNRESET);
}

}  // namespace
}  // namespace gpusock::proxy::verbs::link_test
