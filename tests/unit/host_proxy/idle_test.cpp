// A context in which nothing happens costs next to nothing, and is there at once when something does.
#include <gpusock/gpusock.hpp>

#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

namespace gpusock {
namespace {

class Idle : public testing::TestWithParam<bool> {
 protected:
  static Options options() {
    Options options;
    options.sockets_max = 64;
    options.assist = GetParam();
    return options;
  }
};

TEST_P(Idle, TheProxySleepsWhileACallerWaitsForNothing) {
  constexpr std::uint64_t kWaitNs = 300'000'000;
  for (const char* at : {"127.0.0.1:0,link=tcp", "127.0.0.1:0,link=p2p"}) {
    Context server(options()), client(options());
    const Net ours = server.net(), theirs = client.net();
    const Socket listener = ours.listen(this_thread(), Endpoint::parse(at), 1, patience());
    Endpoint where;
    ASSERT_EQ(ours.getsockname(listener, where), 0);
    const Socket visitor = theirs.connect(this_thread(), where, patience());
    const Socket peer = ours.accept(this_thread(), listener, patience());
    ASSERT_GE(peer, 0);
    char byte = 'x';
    ASSERT_EQ(ours.recv(this_thread(), peer, &byte, 1, 0, Deadline::after_ns(kWaitNs / 10)), -ETIMEDOUT);  // settles
    const Context::Stats before = server.stats(), other_before = client.stats();
    ASSERT_EQ(ours.recv(this_thread(), peer, &byte, 1, 0, Deadline::after_ns(kWaitNs)), -ETIMEDOUT);
    const Context::Stats after = server.stats(), other_after = client.stats();
    // Looking every millisecond would be 300 times.
    EXPECT_LT(after.proxy_wakeups - before.proxy_wakeups, 30u) << at;
    EXPECT_LT(other_after.proxy_steps - other_before.proxy_steps, 30u) << at << ", where nobody waits";
    ASSERT_EQ(theirs.send(this_thread(), visitor, &byte, 1, kWaitAll, patience()), 1);
    EXPECT_EQ(ours.recv(this_thread(), peer, &byte, 1, 0, patience()), 1) << at << ", after the sleep";
  }
}

INSTANTIATE_TEST_SUITE_P(Engine, Idle, testing::Bool(),
                         [](const auto& kind) { return kind.param ? "Assisted" : "ThreadAlone"; });

}  // namespace
}  // namespace gpusock
