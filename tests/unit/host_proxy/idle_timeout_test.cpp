// SocketOption::idle_timeout_ns, by a clock that is a number.
#include "tests/fuzz/node.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace gpusock::proxy::idle_timeout {
namespace {

constexpr int kTimeoutMs = 1000;

class IdleTimeout : public testing::Test {
 protected:
  void SetUp() override {
    node_.start();
    listener_ = node_.net.listen(this_thread(), fuzz::WireStream::here().with_link(LinkKind::tcp), 4, Deadline::now());
    ASSERT_GE(listener_, 0);
    set(listener_, std::int64_t{kTimeoutMs} * 1'000'000);
    wire_ = node_.network.arrive();
    node_.turn(2);
    socket_ = node_.net.accept(this_thread(), listener_, Deadline::now());
    ASSERT_GE(socket_, 0);
  }
  void set(Socket socket, std::int64_t value) {
    ASSERT_EQ(node_.net.setsockopt(this_thread(), socket, SocketOption::idle_timeout_ns, value), 0);
    node_.turn();
  }
  int events() {
    PollEntry entry{socket_, kPollIn, 0};
    node_.net.poll(this_thread(), &entry, 1, Deadline::now());
    return entry.revents;
  }
  /// Milliseconds until it has failed; `limit` if it has not by then.
  int lasts_ms(int limit) {
    const std::uint64_t start_ns = node_.now_ns;
    for (;;) {
      const int ms = static_cast<int>((node_.now_ns - start_ns) / 1'000'000);
      if ((events() & kPollErr) != 0) return ms;
      if (ms >= limit) return limit;
      node_.turn();
    }
  }

  fuzz::Node node_;
  std::shared_ptr<fuzz::Wire> wire_;
  Socket listener_ = -1, socket_ = -1;
};

TEST_F(IdleTimeout, EndsAConnectionOnWhichNothingMoves) {
  const int lasted = lasts_ms(2 * kTimeoutMs);
  EXPECT_GE(lasted, kTimeoutMs - 10);
  EXPECT_LE(lasted, kTimeoutMs * 5 / 4 + 10);
  EXPECT_TRUE(wire_->node_gone) << "the peer is reset";
  char byte = 0;
  EXPECT_EQ(node_.net.recv(this_thread(), socket_, &byte, 1), -ETIMEDOUT);
  EXPECT_EQ(node_.net.send(this_thread(), socket_, &byte, 1), -ETIMEDOUT);
  std::int64_t value = 0;
  EXPECT_EQ(node_.net.getsockopt(this_thread(), socket_, SocketOption::error, value), 0);
  EXPECT_EQ(value, ETIMEDOUT);
  EXPECT_EQ(node_.net.close(this_thread(), socket_), 0);
}

TEST_F(IdleTimeout, StartsAnewWithEachByteInEitherDirection) {
  char byte = 'x';
  for (int i = 0; i < 20; ++i) {
    if (i % 2 == 0) {
      wire_->to_node += byte;
    } else {
      ASSERT_EQ(node_.net.send(this_thread(), socket_, &byte, 1, kDontWait), 1);
    }
    ASSERT_EQ(lasts_ms(kTimeoutMs - 100), kTimeoutMs - 100) << i;
    if (i % 2 == 0) {
      ASSERT_EQ(node_.net.recv(this_thread(), socket_, &byte, 1, kDontWait), 1);
    }
  }
  // The last byte moved some time ago.
  const int lasted = kTimeoutMs - 100 + lasts_ms(2 * kTimeoutMs);
  EXPECT_GE(lasted, kTimeoutMs - 10);
  EXPECT_LE(lasted, kTimeoutMs * 5 / 4 + 10) << "at most a quarter longer";
}

TEST_F(IdleTimeout, LeavesWhatArrivedToTheReader) {
  wire_->to_node = "last";
  EXPECT_LT(lasts_ms(3 * kTimeoutMs), 3 * kTimeoutMs);
  char bytes[8];
  EXPECT_EQ(node_.net.recv(this_thread(), socket_, bytes, sizeof bytes), 4);
  EXPECT_EQ(node_.net.recv(this_thread(), socket_, bytes, sizeof bytes), -ETIMEDOUT);
}

TEST_F(IdleTimeout, CanBeTakenBackAndSetAgain) {
  set(socket_, -1);
  node_.pass(1000);
  EXPECT_EQ(events(), 0);
  set(socket_, 50'000'000);
  EXPECT_LE(lasts_ms(kTimeoutMs), 100);
}

TEST_F(IdleTimeout, ConnectionsWithTheSameOneAreLookedAtTogether) {
  const auto other = node_.network.arrive();
  node_.turn(kTimeoutMs / 3);
  ASSERT_GE(node_.net.accept(this_thread(), listener_, Deadline::now()), 0);
  int dues = 0;
  std::uint64_t due_ns = 0;
  for (int ms = 0; ms < kTimeoutMs; ++ms) {
    if (node_.proxy->next_deadline_ns() != due_ns) ++dues;
    due_ns = node_.proxy->next_deadline_ns();
    node_.turn();
  }
  EXPECT_LE(dues, 6) << "once in a quarter of the timeout, however many connections there are";
}

}  // namespace
}  // namespace gpusock::proxy::idle_timeout
