// How long calls wait that are given no deadline: the socket's timeout, else the context's.
#include "tests/conformance/party.cuh"

#include <string>

namespace gpusock::conformance::timeouts {
namespace {

constexpr std::uint64_t kShortNs = 20'000'000;

Options impatient(std::uint64_t timeout_ns) {
  Options options;
  options.sockets_max = 16;
  options.connections_max = 8;
  options.timeout_ns = timeout_ns;
  return options;
}

/// A connection on which nothing is sent: calls both on it and on its listener without a deadline.
struct WaitForNothing {
  Report* report;
  Endpoint at;
  PollEntry* entry;

  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net) {
    const Socket listener = net.listen(group, at);
    if (group.thread_rank() == 0) net.getsockname(listener, report->where);
    group.sync();
    note(group, report, 0, net.accept(group, listener));
    const Socket near = net.connect(group, report->where, patience());
    const Socket far = net.accept(group, listener, patience());
    char byte = 0;
    note(group, report, 1, net.recv(group, near, &byte, 1));
    note(group, report, 2, net.peek(group, near, 1).size);
    if (group.thread_rank() == 0) *entry = {near, kPollIn, 0};
    group.sync();
    note(group, report, 3, net.poll(group, entry, 1));
    for (Span room = net.reserve(group, near, 4096, Deadline::now()); room.size > 0;) {
      net.commit(group, near, static_cast<std::size_t>(room.size));
      room = net.reserve(group, near, 4096, Deadline::now());
    }
    note(group, report, 4, net.send(group, near, &byte, 1));  // full: nobody receives
    note(group, report, 5, net.reserve(group, near, 1).size);
    net.close(group, near);
    net.close(group, far);
    net.close(group, listener);
  }
};

template <class Scope>
class DefaultDeadline : public testing::Test {};

using Scopes = testing::Types<ThreadScope, BlockScope, HostScope>;
TYPED_TEST_SUITE(DefaultDeadline, Scopes, ScopeName);

TYPED_TEST(DefaultDeadline, EndsEveryCallThatIsGivenNone) {
  Party<TypeParam> party(impatient(kShortNs));
  Mapped<PollEntry> entry(party.context, 1);
  Endpoint at = loopback(LinkKind::p2p).with_ring_bytes(4096);
  party.start(WaitForNothing{&party.report(), at, entry.data()});
  party.join();
  EXPECT_EQ(party.result(0), -ETIMEDOUT) << "accept";
  EXPECT_EQ(party.result(1), -ETIMEDOUT) << "recv";
  EXPECT_EQ(party.result(2), -ETIMEDOUT) << "peek";
  EXPECT_EQ(party.result(3), 0) << "poll";
  EXPECT_EQ(party.result(4), -ETIMEDOUT) << "send";
  EXPECT_EQ(party.result(5), -ETIMEDOUT) << "reserve";
}

/// Connected sockets of host threads. Their listener has timeouts of its own.
class SocketTimeout : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_GE(listener_, 0);
    set(listener_, SocketOption::receive_timeout_ns, kShortNs);
    set(listener_, SocketOption::send_timeout_ns, kShortNs / 2);
    Endpoint where;
    ASSERT_EQ(net_.getsockname(listener_, where), 0);
    near_ = net_.connect(this_thread(), where, patience());
    far_ = net_.accept(this_thread(), listener_, patience());
    ASSERT_GE(near_, 0);
    ASSERT_GE(far_, 0);
  }
  void set(Socket socket, SocketOption option, std::int64_t value) {
    ASSERT_EQ(net_.setsockopt(this_thread(), socket, option, value), 0);
  }
  std::int64_t get(Socket socket, SocketOption option) {
    std::int64_t value = -99;
    EXPECT_EQ(net_.getsockopt(this_thread(), socket, option, value), 0);
    return value;
  }

  Context context_{impatient(kForever)};
  Net net_ = context_.net();
  Socket listener_ = net_.listen(this_thread(), loopback(LinkKind::p2p).with_ring_bytes(4096), 4, patience());
  Socket near_ = -1, far_ = -1;
  char byte_ = 0;
};

TEST_F(SocketTimeout, IsTheContextsAtFirstAndOfAnAcceptedSocketItsListeners) {
  EXPECT_EQ(get(near_, SocketOption::receive_timeout_ns), -1);
  EXPECT_EQ(get(near_, SocketOption::send_timeout_ns), -1);
  EXPECT_EQ(get(near_, SocketOption::idle_timeout_ns), -1);
  EXPECT_EQ(get(far_, SocketOption::receive_timeout_ns), std::int64_t{kShortNs});
  EXPECT_EQ(get(far_, SocketOption::send_timeout_ns), std::int64_t{kShortNs / 2});
  EXPECT_EQ(net_.recv(this_thread(), far_, &byte_, 1), -ETIMEDOUT);
  EXPECT_EQ(net_.accept(this_thread(), listener_), -ETIMEDOUT);
}

TEST_F(SocketTimeout, IsWhatItWasSetToLast) {
  set(near_, SocketOption::receive_timeout_ns, 1);
  EXPECT_EQ(net_.recv(this_thread(), near_, &byte_, 1), -ETIMEDOUT);
  set(far_, SocketOption::receive_timeout_ns, -1);
  EXPECT_EQ(get(far_, SocketOption::receive_timeout_ns), -1);
  while (net_.send(this_thread(), far_, &byte_, 1, kDontWait) == 1) {
  }
  EXPECT_EQ(net_.send(this_thread(), far_, &byte_, 1), -ETIMEDOUT);
}

TEST_F(SocketTimeout, RefusesWhatItCannotBe) {
  for (const auto option :
       {SocketOption::receive_timeout_ns, SocketOption::send_timeout_ns, SocketOption::idle_timeout_ns}) {
    EXPECT_EQ(net_.setsockopt(this_thread(), near_, option, 0), -EINVAL);
    EXPECT_EQ(net_.setsockopt(this_thread(), near_, option, -2), -EINVAL);
    EXPECT_EQ(net_.setsockopt(this_thread(), 12345678, option, 5), -EBADF);
  }
  EXPECT_EQ(net_.setsockopt(this_thread(), near_, SocketOption::idle_timeout_ns, std::int64_t{1} << 62), -EINVAL);
}

TEST(DeadlineTest, IsAMinuteWhereNobodySaysOtherwise) { EXPECT_EQ(Options().timeout_ns, 60'000'000'000u); }

TEST(DeadlineTest, TheDefaultIsNeitherNeverNorNow) {
  const Deadline chosen = Deadline::by_default();
  EXPECT_TRUE(chosen.is_default());
  EXPECT_FALSE(chosen.is_never() || chosen.is_now() || chosen.passed());
  EXPECT_TRUE(chosen.here().is_default());
  EXPECT_FALSE(Deadline::never().is_default() || Deadline::now().is_default() || Deadline::after_ns(1).is_default());
}

}  // namespace
}  // namespace gpusock::conformance::timeouts
