// Connecting to an endpoint of several addresses of which some do not answer, by a clock that is a number.
#include "tests/fuzz/node.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <utility>

namespace gpusock::proxy::attempts {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

class Attempts : public testing::Test {
 protected:
  void SetUp() override {
    node_.start();
    node_.network.be_silent(true);
  }
  /// What connect returns; `beside` happens in each millisecond of it.
  Socket connect(std::function<void()> beside) {
    node_.beside = std::move(beside);
    const Socket socket = node_.net.connect(this_thread(), to_, Deadline::never());
    node_.beside = nullptr;
    return socket;
  }
  std::size_t tried() const { return node_.network.tried().size(); }
  fuzz::Wire& wire(std::size_t index) { return *node_.network.tried().at(index); }
  std::uint64_t ms() const { return node_.now_ns / kMs; }

  fuzz::Node node_;
  Endpoint to_ = Endpoint::parse("192.0.2.1:7,link=tcp,or=192.0.2.2,or=192.0.2.3");
};

TEST_F(Attempts, AnAddressThatDoesNotAnswerDoesNotKeepTheNextOneWaiting) {
  const Socket socket = connect([&] {
    if (tried() == 2) wire(1).silent = false;
  });
  EXPECT_GE(socket, 0);
  EXPECT_GE(ms(), 240u) << "the first address has a quarter of a second for itself";
  EXPECT_LT(ms(), 400u);
  EXPECT_EQ(tried(), 2u);
  EXPECT_TRUE(wire(0).node_gone);
  EXPECT_FALSE(wire(1).node_gone);
  Endpoint peer;
  ASSERT_EQ(node_.net.getpeername(socket, peer), 0);
  EXPECT_EQ(peer.host_port(), "192.0.2.2:7");
}

TEST_F(Attempts, AnAddressThatAnswersLateIsTakenAllTheSame) {
  const Socket socket = connect([&] {
    if (ms() >= 700) wire(0).silent = false;
  });
  EXPECT_GE(socket, 0);
  EXPECT_EQ(tried(), 3u);
  EXPECT_FALSE(wire(0).node_gone);
  EXPECT_TRUE(wire(1).node_gone && wire(2).node_gone);
  Endpoint peer;
  ASSERT_EQ(node_.net.getpeername(socket, peer), 0);
  EXPECT_EQ(peer.host_port(), "192.0.2.1:7");
  char byte = 'x';
  EXPECT_EQ(node_.net.send(this_thread(), socket, &byte, 1, kDontWait), 1);
  node_.turn(2);
  EXPECT_EQ(wire(0).from_node, "x");
}

TEST_F(Attempts, AFailureBringsTheNextAddressAtOnce) {
  const Socket socket = connect([&] {
    if (tried() == 1) wire(0).reset = true;
    if (tried() == 2) wire(1).silent = false;
  });
  EXPECT_GE(socket, 0);
  EXPECT_LT(ms(), 100u);
}

TEST_F(Attempts, WhenTheLastAddressFailsAnEarlierOneMayStillAnswer) {
  const Socket socket = connect([&] {
    if (tried() == 3) wire(2).reset = true;
    if (ms() >= 800) wire(1).silent = false;
  });
  EXPECT_GE(socket, 0);
  EXPECT_GE(ms(), 800u);
}

TEST_F(Attempts, WhenAllHaveFailedSoHasTheCall) {
  const Socket socket = connect([&] {
    if (tried() == 3 && ms() >= 900) wire(0).reset = wire(1).reset = wire(2).reset = true;
  });
  EXPECT_EQ(socket, -ECONNREFUSED);
}

TEST_F(Attempts, AnAddressThatAnswersAtOnceIsTheOnlyOneTried) {
  node_.network.be_silent(false);
  EXPECT_GE(connect([] {}), 0);
  EXPECT_EQ(tried(), 1u);
}

TEST_F(Attempts, TheHandshakesTimeHoldsForAllTogether) {
  to_.link = LinkKind::automatic;
  EXPECT_EQ(connect([] {}), -ETIMEDOUT);
  EXPECT_EQ(tried(), 3u);
  EXPECT_LT(ms(), 6'000u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(wire(i).node_gone) << i;
}

}  // namespace
}  // namespace gpusock::proxy::attempts
