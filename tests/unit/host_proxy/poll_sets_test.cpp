// What a poll set costs, counted and not timed: idle sockets cost neither its callers nor the proxy anything.
#include "gpusock/context/context_impl.hpp"

#include <gpusock/gpusock.hpp>

#include "tests/support/patience.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace gpusock {
namespace {

/// A set with one socket that is used and others that are idle.
class Watching {
 public:
  explicit Watching(int idle) : context_(options_for(idle)) {
    const Socket listener = net_.listen(self_, Endpoint::parse("127.0.0.1:0,link=tcp"), 16, patience());
    Endpoint where;
    EXPECT_EQ(net_.getsockname(listener, where), 0);
    for (int i = 0; i <= idle; ++i) {
      near_.push_back(net_.connect(self_, where, patience()));
      const Socket far = net_.accept(self_, listener, patience());
      EXPECT_EQ(net_.watch(self_, set_, far, kPollIn, 0), 0);
    }
  }

  struct Cost {
    std::uint64_t looks;  ///< of callers, at sockets
    std::uint64_t proxy_looks;
    std::uint64_t steps;
  };

  /// Ten bytes, each of which is waited for, received, and then not there any more.
  Cost ten_events() {
    const Cost before = so_far();
    PollEvent events[4];
    for (int i = 0; i < 10; ++i) {
      char byte = 'x';
      EXPECT_EQ(net_.send(self_, near_[0], &byte, 1, kWaitAll, patience()), 1);
      EXPECT_EQ(net_.wait(self_, set_, events, 4, patience()), 1);
      EXPECT_EQ(net_.recv(self_, events[0].socket, &byte, 1, 0, patience()), 1);
      EXPECT_EQ(net_.wait(self_, set_, events, 4, Deadline::now()), 0);
    }
    const Cost after = so_far();
    return {after.looks - before.looks, after.proxy_looks - before.proxy_looks, after.steps - before.steps};
  }

 private:
  static Options options_for(int idle) {
    Options options;
    options.ring_bytes = 4 << 10;
    options.sockets_max = static_cast<std::uint32_t>(idle) + 8;
    options.connections_max = 2 * options.sockets_max;
    return options;
  }

  Cost so_far() {
    proxy::Engine& engine = context_.impl().engine;
    const auto lock = engine.suspend();
    const proxy::Proxy& proxy = context_.impl().proxy;
    return {context_.impl().host_side.sets->callers[table::index_of_set(set_)].looks, proxy.poll_sets().looks(),
            proxy.stats().steps};
  }

  Context context_;
  Net net_ = context_.net();
  ThisThread self_;
  PollSet set_ = net_.open_set(self_);
  std::vector<Socket> near_;
};

/// The cost of ten events once everything has settled: the proxy tells of each new watch once, at a time of its own.
Watching::Cost settled_cost(int idle) {
  Watching watching(idle);
  Watching::Cost cost{};
  for (int round = 0; round < 2 * idle + 100; ++round) {
    cost = watching.ten_events();
    if (cost.looks <= 20 && cost.proxy_looks <= 2 * cost.steps) break;
  }
  return cost;
}

TEST(PollSetCost, DoesNotGrowWithIdleSockets) {
  constexpr int kIdle = 1000;
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_max < 2 * kIdle + 200) GTEST_SKIP() << "1,000 connections need 2,200 descriptors (ulimit -Hn)";
  rlimit more = files;
  more.rlim_cur = std::max<rlim_t>(files.rlim_cur, 2 * kIdle + 200);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &more), 0);
  for (const int idle : {1, kIdle}) {
    const Watching::Cost cost = settled_cost(idle);
    EXPECT_EQ(cost.looks, 20u) << "an event is a look that finds it, and one that does not find it any more; " << idle
                               << " idle sockets";
    EXPECT_LE(cost.proxy_looks, 2 * cost.steps) << "a step looks at the one connection that it serves";
  }
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace
}  // namespace gpusock
