// What a node tells the others before it ends its connections, and what it makes of their words. It is rank 0 of three;
// the test plays the others, so that it decides who says what and when.
#include "param_sync/executor/hello.hpp"
#include "plan/exchange_plan.hpp"
#include "plan/plan.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/patience.hpp"
#include "tests/support/whole.hpp"
#include "training/hello.cuh"
#include "training/node.hpp"
#include "training/watch.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

namespace last_words_test {
namespace {

using namespace param_sync;
using executor::ChannelHello;
using executor::ChannelHelloField;
using gpusock::Endpoint;
using gpusock::test::receive_whole;
using gpusock::test::send_whole;
using ::testing::HasSubstr;

constexpr int kNodes = 3;

Dataset small_data() {
  constexpr std::uint32_t kPixels = 4, kSamples = 24;
  Samples samples{kPixels, std::vector<std::uint8_t>(kPixels * kSamples, 7), std::vector<std::uint8_t>(kSamples, 1)};
  return {samples, samples, 2};
}

Config settings(const std::string& link) {
  Config config;
  config.nodes = kNodes;
  config.rank = 0;
  config.hidden = {4};
  config.batch = 2;
  config.scheme = "ring";
  config.link = Endpoint::parse("127.0.0.1:0,link=" + link).link;
  return config;
}

/// A node that a host thread plays.
class PlayedNode {
 public:
  PlayedNode(int rank, const Endpoint& zero)
      : rank_(rank), zero_(zero), listener_(net_.listen(gpusock::this_thread(), zero.with_port(0))), at_(zero) {
    EXPECT_GE(listener_, 0);
    EXPECT_EQ(net_.getsockname(listener_, at_), 0);
    at_.link = zero.link;
  }

  const Endpoint& at() const { return at_; }

  /// With the same settings as rank 0.
  void connect() {
    from_zero_ = open(net_.accept(gpusock::this_thread(), listener_, gpusock::patience()));
    auto hello = receive_whole<NodeHello>(net_, from_zero_);
    hello.rank = rank_;
    send_whole(net_, from_zero_, hello);
    to_zero_ = open(net_.connect(gpusock::this_thread(), zero_, gpusock::patience()));
    send_whole(net_, to_zero_, hello);
    receive_whole<NodeHello>(net_, to_zero_);
  }
  void meet() {
    EXPECT_EQ(hear(), kHere);
    say(kHere);
  }
  void open_channels(const ExchangePlan& plan) {
    for (const executor::Channel& channel : executor::channels_of(plan.schedules, 0)) {
      if (channel.peer == rank_) open_channel(plan, channel);
    }
    EXPECT_FALSE(channels_.empty());
  }
  void open_channel(const ExchangePlan& plan, const executor::Channel& channel) {
    ChannelHello hello;
    hello.rank = rank_;
    hello[ChannelHelloField::nodes] = kNodes;
    hello[ChannelHelloField::ring_bytes] = plan.ring_bytes;
    hello[ChannelHelloField::unit_bytes] = plan.unit_bytes;
    hello[ChannelHelloField::schedules] = executor::fingerprint(plan.schedules);
    hello.channel = channel.number;
    channels_.push_back(open(net_.connect(gpusock::this_thread(), zero_, gpusock::patience())));
    send_whole(net_, channels_.back(), hello);
    receive_whole<ChannelHello>(net_, channels_.back());
  }

  void say(std::uint8_t word) { send_whole(net_, from_zero_, word); }
  /// Rank 0's next word, or kEndedMute.
  std::uint8_t hear() {
    std::uint8_t word = kNothingSaid;
    const auto got = net_.recv(gpusock::this_thread(), to_zero_, &word, sizeof word, 0, gpusock::patience());
    EXPECT_NE(got, -ETIMEDOUT);
    return got == 1 ? word : std::uint8_t{kEndedMute};
  }
  void end_channels() { close(channels_); }
  /// As a killed process.
  void end() { close(sockets_); }

 private:
  gpusock::Socket open(gpusock::Socket socket) {
    EXPECT_GE(socket, 0);
    sockets_.push_back(socket);
    return socket;
  }
  void close(const std::vector<gpusock::Socket>& sockets) {
    for (const gpusock::Socket socket : sockets) net_.close(gpusock::this_thread(), socket);  // again: an error
  }

  int rank_;
  Endpoint zero_;
  gpusock::Context context_;
  gpusock::Net net_ = context_.net();
  gpusock::Socket listener_, from_zero_ = -1, to_zero_ = -1;
  Endpoint at_;
  std::vector<gpusock::Socket> sockets_, channels_;
};

class NodeLastWords : public ::testing::TestWithParam<const char*> {
 public:
  ~NodeLastWords() override { EXPECT_FALSE(running_.valid()); }

 protected:
  /// The node sets out; one_ and two_ have connected when this returns.
  void start(bool trains = true) {
    running_ = std::async(std::launch::async, [this, trains] {
      return gpusock::test::error_of([&] {
        node_->connect({zero_, one_.at(), two_.at()});
        if (trains) node_->train({});
      });
    });
    one_.connect();
    two_.connect();
  }
  /// The same, and the node begins to train. It waits for ever, as the other ranks send no gradients.
  void start_training() {
    start();
    one_.meet();
    two_.meet();
    for (PlayedNode* node : {&one_, &two_}) node->open_channels(plan_);
  }
  /// What the node says when it fails; its connections end.
  std::string failure() {
    std::string said = running_.get();
    node_.reset();
    return said;
  }

  Config config_ = settings(GetParam());
  Dataset data_ = small_data();
  ExchangePlan plan_ = make_exchange_plan(config_, Plan::make(config_, data_).layout);
  /// This node waits for no other at its end: a word that were still on its way then would be lost.
  std::unique_ptr<Node> node_ = std::make_unique<Node>(config_, data_, LossObserver{.await_others = [] {}});
  Endpoint zero_ = node_->listen(Endpoint::parse(std::string("127.0.0.1:0,link=") + GetParam()));
  PlayedNode one_{1, zero_}, two_{2, zero_};
  std::future<std::string> running_;
};

TEST_P(NodeLastWords, NameTheLostRankBeforeTheConnectionsEnd) {
  start_training();
  one_.end();
  EXPECT_THAT(failure(), HasSubstr("rank 0: lost rank 1: "));
  EXPECT_EQ(two_.hear(), kFirstLost + 1);
  EXPECT_EQ(two_.hear(), kEndedMute);
}

TEST_P(NodeLastWords, NameARankThatIsLostWhileNodesMeet) {
  start();
  two_.meet();
  EXPECT_EQ(one_.hear(), kHere);
  one_.end();
  EXPECT_THAT(failure(), HasSubstr("rank 0: lost rank 1: it closed the connection before the end"));
  EXPECT_EQ(two_.hear(), kFirstLost + 1);
}

TEST_P(NodeLastWords, OfAnotherAreHeardWhileNodesMeet) {
  start();
  one_.meet();
  EXPECT_EQ(two_.hear(), kHere);
  two_.say(kFirstLost + 1);
  two_.end();
  EXPECT_EQ(failure(), "rank 0: lost rank 1: rank 2 has lost it, and told so");
  EXPECT_EQ(one_.hear(), kFirstLost + 1);
}

TEST_P(NodeLastWords, OfAnotherComeAfterTheEndOfItsLanes) {
  start_training();
  two_.end_channels();
  two_.say(kFirstLost + 1);
  two_.end();
  EXPECT_EQ(failure(), "rank 0: lost rank 1: rank 2 has lost it, and told so");
}

TEST_P(NodeLastWords, OfOneThatDoesNotKnowLeaveTheLostRankUnknown) {
  start_training();
  two_.say(kFailed);
  two_.end();
  EXPECT_THAT(failure(), HasSubstr("rank 2 has ended the run, and says why; the lost rank is unknown"));
  EXPECT_EQ(one_.hear(), kFailed);
}

TEST_P(NodeLastWords, OfOneThatWasToldToEndSaySo) {
  start_training();
  two_.say(kInterrupted);
  two_.end();
  EXPECT_THAT(failure(), HasSubstr("lost rank 2: it was told to end"));
  EXPECT_EQ(one_.hear(), kFailed);
}

TEST_P(NodeLastWords, SayThatThisNodeWasToldToEnd) {
  start_training();
  node_->request_stop();
  EXPECT_EQ(failure(), "interrupted");
  EXPECT_EQ(one_.hear(), kInterrupted);
  EXPECT_EQ(two_.hear(), kInterrupted);
}

TEST_P(NodeLastWords, AreSaidByANodeThatEndsForAnyOtherReason) {
  start(false);
  one_.meet();
  two_.meet();
  for (PlayedNode* node : {&one_, &two_}) node->open_channels(plan_);
  EXPECT_EQ(failure(), "");
  EXPECT_EQ(one_.hear(), kFailed);
  EXPECT_EQ(two_.hear(), kFailed);
}

TEST_P(NodeLastWords, AreSaidWhereChannelsCannotBeOpened) {
  ExchangePlan other = plan_;
  other.unit_bytes += sizeof(float);
  start();
  one_.meet();
  two_.meet();
  one_.open_channel(other, executor::channels_of(plan_.schedules, 1).front());
  EXPECT_THAT(failure(), HasSubstr("was started with other settings: unit size"));
  EXPECT_EQ(two_.hear(), kFailed);
}

INSTANTIATE_TEST_SUITE_P(, NodeLastWords, ::testing::Values("p2p", "tcp"),
                         [](const auto& link) { return std::string(link.param); });

}  // namespace
}  // namespace last_words_test
