// Closed connections whose peers do not take what was sent, by a clock that is a number.
#include "tests/fuzz/node.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace gpusock::proxy::closing {
namespace {

constexpr int kFarLessThanLingerMs = 5'000;  // a closed connection goes on delivering for 30 s

class Closing : public testing::Test {
 protected:
  void SetUp() override {
    node_.start();
    listener_ = node_.net.listen(this_thread(), fuzz::WireStream::here().with_link(LinkKind::tcp), 4, Deadline::now());
    ASSERT_GE(listener_, 0);
  }
  /// A client that takes `room` bytes. It is sent 100 bytes; then its socket is closed.
  std::shared_ptr<fuzz::Wire> closed_client(std::size_t room) {
    const auto wire = node_.network.arrive();
    wire->room = room;
    node_.turn(2);
    const Socket socket = node_.net.accept(this_thread(), listener_, Deadline::now());
    EXPECT_GE(socket, 0);
    const std::string bytes(100, 'x');
    EXPECT_EQ(node_.net.send(this_thread(), socket, bytes.data(), bytes.size(), kDontWait), 100);
    EXPECT_EQ(node_.net.close(this_thread(), socket), 0);
    node_.turn();
    return wire;
  }
  /// Milliseconds until the next client can be accepted.
  int next_client_waits_ms() {
    const auto wire = node_.network.arrive();
    const std::uint64_t start_ns = node_.now_ns;
    for (;;) {
      node_.turn();
      const int ms = static_cast<int>((node_.now_ns - start_ns) / 1'000'000);
      const bool accepted = node_.net.accept(this_thread(), listener_, Deadline::now()) >= 0;
      if (accepted || ms >= kFarLessThanLingerMs) return ms;
    }
  }

  fuzz::Node node_;
  Socket listener_ = -1;
};

TEST_F(Closing, TheOneThatWasClosedFirstMakesRoomForAClientThatWaits) {
  std::vector<std::shared_ptr<fuzz::Wire>> silent;
  for (std::uint32_t i = 0; i < fuzz::Node::kSockets; ++i) silent.push_back(closed_client(10));
  const int waited_ms = next_client_waits_ms();
  EXPECT_GE(waited_ms, 900) << "the closed ones have a second";
  EXPECT_LT(waited_ms, 2'100);
  EXPECT_TRUE(silent[0]->node_gone);
  EXPECT_FALSE(silent[1]->node_gone) << "no more than one client waited";
}

TEST_F(Closing, GoesOnDeliveringWhereNobodyWaitsForItsSocket) {
  const auto slow = closed_client(10);
  node_.turn(kFarLessThanLingerMs);
  EXPECT_FALSE(slow->node_gone);
  slow->room = 1'000;
  node_.turn(2);
  EXPECT_EQ(slow->from_node.size(), 100u);
}

TEST_F(Closing, ClientsThatComeOneAfterTheOtherAllFindRoom) {
  for (std::uint32_t i = 0; i < fuzz::Node::kSockets; ++i) closed_client(10);
  for (std::uint32_t i = 0; i < fuzz::Node::kSockets; ++i) EXPECT_LT(next_client_waits_ms(), 2'100) << i;
}

}  // namespace
}  // namespace gpusock::proxy::closing
