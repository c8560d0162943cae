// Points in time: what is further off than the clock goes is never, and not at once.
#include <gpusock/gpusock.hpp>

#include "plain_types/clock.hpp"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

namespace gpusock {
namespace {

constexpr std::uint64_t kLast = ~std::uint64_t{0};

TEST(LaterTime, IsNeverWhereTheClockDoesNotGoThatFar) {
  static_assert(detail::later_ns(5, 7) == 12);
  static_assert(detail::later_ns(5, kLast - 6) == kLast - 1);
  static_assert(detail::later_ns(5, kLast - 5) == detail::kNever);
  static_assert(detail::later_ns(5, kLast) == detail::kNever);
  static_assert(detail::later_ns(kLast, kLast) == detail::kNever);
  static_assert(detail::later_ns(detail::kNever, 0) == detail::kNever);
}

TEST(DeadlinesInMilliseconds, PassAfterThemAndDoNotWrap) {
  const std::uint64_t begin_ns = clock_ns();
  const Deadline soon = Deadline::after_ms(1);
  EXPECT_FALSE(soon.is_never() || soon.is_now() || soon.is_default());
  while (!soon.passed()) {
  }
  EXPECT_GE(clock_ns() - begin_ns, 1'000'000u);
  EXPECT_FALSE(Deadline::after_ms(3'600'000).passed());
  EXPECT_TRUE(Deadline::after_ms(kLast).is_never());
  EXPECT_TRUE(Deadline::after_ms(kLast / 1'000'000 + 1).is_never()) << "as nanoseconds it is more than a word holds";
}

class LongTimeouts : public testing::TestWithParam<std::uint64_t> {};

TEST_P(LongTimeouts, ConnectionsAreMadeAndClosed) {
  Options options;
  options.sockets_max = 8;
  options.handshake_timeout_ns = GetParam();
  Context server(options), client(options);
  const Net ours = server.net(), theirs = client.net();
  const Socket listener = ours.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=auto"), 1, patience());
  Endpoint at;
  ASSERT_EQ(ours.getsockname(listener, at), 0);
  for (int i = 0; i < 3; ++i) {
    const Socket near = theirs.connect(this_thread(), at, patience());
    ASSERT_GE(near, 0);
    const Socket far = ours.accept(this_thread(), listener, patience());
    ASSERT_GE(far, 0);
    ASSERT_EQ(ours.setsockopt(this_thread(), far, SocketOption::linger, std::int64_t{1} << 30), 0);
    ASSERT_EQ(ours.send(this_thread(), far, "x", 1, 0, Deadline::after_ns(GetParam())), 1);
    ASSERT_EQ(ours.close(this_thread(), far), 0);
    char byte = 0;
    EXPECT_EQ(theirs.recv(this_thread(), near, &byte, 1, 0, patience()), 1);
    EXPECT_EQ(theirs.recv(this_thread(), near, &byte, 1, 0, patience()), 0);
    EXPECT_EQ(theirs.close(this_thread(), near), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Times, LongTimeouts, testing::Values(kLast, kLast - 1, kLast / 2));

}  // namespace
}  // namespace gpusock
