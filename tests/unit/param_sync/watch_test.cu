// When a node may stop watching the others.
#include "training/watch.cuh"

#include "gpusock/gpusock.hpp"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>

namespace watch_test {
namespace {

using namespace param_sync;

struct Opened {
  gpusock::Socket listener = -1;
  gpusock::Endpoint at;
};

__global__ void open(gpusock::Net net, gpusock::Endpoint at, Opened* opened) {
  opened->listener = net.listen(gpusock::this_thread(), at);
  if (opened->listener >= 0) net.getsockname(opened->listener, opened->at);
}

__global__ void accept_all(gpusock::Net net, gpusock::Socket listener, gpusock::Socket* sockets, int others) {
  for (int i = 0; i < others; ++i) sockets[1 + i] = net.accept(gpusock::this_thread(), listener, gpusock::patience());
}

__global__ void connect_all(gpusock::Net net, gpusock::Endpoint at, gpusock::Socket* sockets, int others) {
  for (int i = 0; i < others; ++i) sockets[1 + i] = net.connect(gpusock::this_thread(), at, gpusock::patience());
}

struct Nodes {
  explicit Nodes(int others)
      : sockets(context, static_cast<std::size_t>(1 + others)),
        channels(context, sockets.size()),
        failed(context, 1),
        failure(context, 1),
        stop(context, 1) {
    sockets.copy_in(std::vector<gpusock::Socket>(sockets.size(), -1));
    std::vector<executor::Channel> all;
    for (int peer = 0; peer <= others; ++peer) all.push_back({peer, executor::kLastWordsChannel});
    channels.copy_in(all);
  }
  /// Rank 0.
  NodeState state() {
    NodeState node;
    node.net = context.net();
    node.nodes = static_cast<int>(sockets.size());
    node.words = {node.net, channels.data(), sockets.data(), node.nodes, 0, nullptr};
    node.failed = failed.data();
    node.failure = failure.data();
    node.stop = stop.data();
    return node;
  }

  gpusock::Context context;
  gpusock::DeviceBuffer<gpusock::Socket> sockets;
  gpusock::DeviceBuffer<executor::Channel> channels;
  gpusock::DeviceBuffer<std::uint64_t> failed;
  gpusock::Mapped<FailureRecord<Failure>> failure;
  gpusock::Mapped<std::uint64_t> stop;
};

/// The host of this node has not noticed yet that its own training has ended, and no clock tells it.
TEST(WatchNodes, EndsWhenAllOthersHaveSaidThatTheyHaveTrainedToTheirEnd) {
  constexpr int kOthers = 2;
  Nodes self(kOthers), others(kOthers);
  gpusock::Stream watching(self.context);
  gpusock::Mapped<Opened> opened(self.context, 1);
  gpusock::Mapped<std::uint64_t> ending(self.context, 1);
  gpusock::Mapped<Heard> heard(self.context, 1 + kOthers);
  gpusock::launch(self.context, {}, open, self.context.net(), gpusock::Endpoint::parse("127.0.0.1:0,link=tcp"),
                  opened.data());
  self.context.synchronize();
  ASSERT_GE(opened[0].listener, 0);
  gpusock::launch(self.context, {}, accept_all, self.context.net(), opened[0].listener, self.sockets.data(), kOthers);
  gpusock::launch(others.context, {}, connect_all, others.context.net(), opened[0].at, others.sockets.data(), kOthers);
  self.context.synchronize();
  others.context.synchronize();

  gpusock::launch(self.context, {.stream = &watching}, watch_nodes, self.state(), ending.data(), heard.data());
  gpusock::launch(others.context, {}, leave, others.state());
  others.context.synchronize();
  const auto watched = std::async(std::launch::async, [&watching] { watching.synchronize(); });
  EXPECT_EQ(watched.wait_for(std::chrono::nanoseconds(gpusock::kPatienceNs)), std::future_status::ready);
  EXPECT_TRUE(watching.idle());
  EXPECT_FALSE(is_recorded(self.failure[0]));
  end_watch(ending[0]);
  watched.wait();
}

TEST(Heard, AFailureSaysNoMoreThanWasHeard) {
  EXPECT_EQ(failure_of({}, 2).kind, FailureKind::silent);
  EXPECT_EQ(failure_of({}, 2).teller, 2);
  EXPECT_EQ(failure_of({}, 2).rank, -1);
  EXPECT_EQ(failure_of({Heard::What::mute_end, {}}, 2).kind, FailureKind::end);
  const Failure told = failure_of({Heard::What::word, {.why = LastWord::Why::lost, .rank = 1}}, 2);
  EXPECT_EQ(told.kind, FailureKind::told);
  EXPECT_EQ(told.rank, 1);
}

}  // namespace
}  // namespace watch_test
