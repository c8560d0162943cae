// What a node tells the others before it ends its connections, and what it makes of their words. It is rank 0 of three;
// the test plays the others, so that it decides who says what and when.
#include "param_sync/executor/executor.hpp"
#include "param_sync/executor/hello.hpp"
#include "plan/exchange_plan.hpp"
#include "plan/plan.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/patience.hpp"
#include "tests/support/whole.hpp"
#include "training/node.hpp"
#include "training/run_settings.hpp"
#include "training/watch.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <vector>

namespace last_words_test {
namespace {

using namespace param_sync;
using executor::ChannelHello;
using executor::ChannelHelloField;
using executor::LastWord;
using Why = LastWord::Why;
using gpusock::Endpoint;
using gpusock::test::receive_whole;
using gpusock::test::send_whole;
using ::testing::HasSubstr;

constexpr int kNodes = 3;

Dataset small_data() {
  constexpr std::uint32_t kPixels = 4, kSamples = 24;
  Samples samples{1, kPixels, std::vector<std::uint8_t>(kPixels * kSamples, 7), std::vector<std::uint8_t>(kSamples, 1)};
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

/// As rank 0 says it.
ChannelHello hello_of(const Config& config, const Dataset& data, const ExchangePlan& plan) {
  ChannelHello hello;
  const RunSettings settings = run_settings(config, data, Plan::make(config, data), plan, 0);
  std::copy(settings.begin(), settings.end(), hello.value + static_cast<int>(ChannelHelloField::program));
  hello[ChannelHelloField::nodes] = kNodes;
  hello[ChannelHelloField::ring_bytes] = plan.ring_bytes;
  hello[ChannelHelloField::unit_bytes] = plan.unit_bytes;
  hello[ChannelHelloField::schedules] = executor::fingerprint(
      plan.schedules, {.execution = plan.execution, .last_words = executor::LastWordsBy::host});
  return hello;
}

/// A node that a host thread plays: it connects to rank 0.
class PlayedNode {
 public:
  PlayedNode(int rank, const Endpoint& zero) : rank_(rank), zero_(zero) {}

  /// With these settings; only for words.
  void connect(const ChannelHello& hello) { words_ = open(hello, executor::kLastWordsChannel); }
  void open_channels(const ChannelHello& hello, const ExchangePlan& plan) {
    for (const executor::Channel& channel : executor::channels_of(plan.schedules, 0)) {
      if (channel.peer == rank_) channels_.push_back(open(hello, channel.number));
    }
    EXPECT_FALSE(channels_.empty());
  }
  gpusock::Socket open(const ChannelHello& hello, int channel) {
    const gpusock::Socket socket = say_hello(hello, channel);
    receive_whole<ChannelHello>(net_, socket);
    return socket;
  }
  gpusock::Socket say_hello(ChannelHello hello, int channel) {
    hello.rank = rank_;
    hello.channel = channel;
    const gpusock::Socket socket = net_.connect(gpusock::this_thread(), zero_, gpusock::patience());
    EXPECT_GE(socket, 0);
    sockets_.push_back(socket);
    send_whole(net_, socket, hello);
    return socket;
  }

  void say(const LastWord& word) { send_whole(net_, words_, word); }
  /// Rank 0's next word, or "end".
  std::string hear() {
    LastWord word;
    const auto got = net_.recv(gpusock::this_thread(), words_, &word, sizeof word, gpusock::kWaitAll,
                               gpusock::patience());
    EXPECT_NE(got, -ETIMEDOUT);
    if (got != static_cast<std::int64_t>(sizeof word)) return "end";
    EXPECT_EQ(word.magic, LastWord::kMagic);
    if (word.why == Why::lost) return "lost " + std::to_string(word.rank);
    return word.why == Why::unknown ? "unknown" : word.why == Why::interrupted ? "interrupted" : "?";
  }
  void end_channels() { close(channels_); }
  /// As a killed process.
  void end() { close(sockets_); }

 private:
  void close(const std::vector<gpusock::Socket>& sockets) {
    for (const gpusock::Socket socket : sockets) net_.close(gpusock::this_thread(), socket);  // again: an error
  }

  int rank_;
  Endpoint zero_;
  gpusock::Context context_;
  gpusock::Net net_ = context_.net();
  gpusock::Socket words_ = -1;
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
        node_->connect({zero_, zero_, zero_});  // it connects to nobody
        if (trains) node_->train({});
      });
    });
    one_.connect(hello_);
    two_.connect(hello_);
  }
  /// The same, and the node begins to train. It waits for ever, as the other ranks send no gradients.
  void start_training() {
    start();
    for (PlayedNode* node : {&one_, &two_}) node->open_channels(hello_, plan_);
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
  ChannelHello hello_ = hello_of(config_, data_, plan_);
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
  EXPECT_EQ(two_.hear(), "lost 1");
  EXPECT_EQ(two_.hear(), "end");
}

TEST_P(NodeLastWords, NameARankThatIsLostWhileNodesMeet) {
  start();
  one_.end();
  EXPECT_THAT(failure(), HasSubstr("rank 0: lost rank 1: it closed the connection before the end"));
  EXPECT_EQ(two_.hear(), "lost 1");
}

TEST_P(NodeLastWords, OfAnotherAreHeardWhileNodesMeet) {
  start();
  two_.say({.why = Why::lost, .rank = 1});
  two_.end();
  EXPECT_EQ(failure(), "rank 0: lost rank 1: rank 2 has lost it, and told so");
  EXPECT_EQ(one_.hear(), "lost 1");
}

TEST_P(NodeLastWords, OfAnotherComeAfterTheEndOfItsLanes) {
  start_training();
  two_.end_channels();
  two_.say({.why = Why::lost, .rank = 1});
  two_.end();
  EXPECT_EQ(failure(), "rank 0: lost rank 1: rank 2 has lost it, and told so");
}

TEST_P(NodeLastWords, OfOneThatDoesNotKnowLeaveTheLostRankUnknown) {
  start_training();
  two_.say({});
  two_.end();
  EXPECT_THAT(failure(), HasSubstr("rank 2 has ended the run, and says why; the lost rank is unknown"));
  EXPECT_EQ(one_.hear(), "unknown");
}

TEST_P(NodeLastWords, OfOneThatWasToldToEndSaySo) {
  start_training();
  two_.say({.why = Why::interrupted});
  two_.end();
  EXPECT_THAT(failure(), HasSubstr("lost rank 2: it was told to end"));
  EXPECT_EQ(one_.hear(), "lost 2");
}

TEST_P(NodeLastWords, SayThatThisNodeWasToldToEnd) {
  start_training();
  node_->request_stop();
  EXPECT_EQ(failure(), "interrupted");
  EXPECT_EQ(one_.hear(), "interrupted");
  EXPECT_EQ(two_.hear(), "interrupted");
}

TEST_P(NodeLastWords, AreSaidByANodeThatEndsForAnyOtherReason) {
  start(false);
  for (PlayedNode* node : {&one_, &two_}) node->open_channels(hello_, plan_);
  EXPECT_EQ(failure(), "");
  EXPECT_EQ(one_.hear(), "unknown");
  EXPECT_EQ(two_.hear(), "unknown");
}

TEST_P(NodeLastWords, AreSaidWhereChannelsCannotBeOpened) {
  start();
  ChannelHello other = hello_;
  other[ChannelHelloField::unit_bytes] += sizeof(float);
  one_.open(other, executor::channels_of(plan_.schedules, 1).front().number);
  EXPECT_THAT(failure(), HasSubstr("rank 1 was started with another version"));
  EXPECT_EQ(two_.hear(), "unknown");
}

TEST_P(NodeLastWords, NameASettingThatDiffers) {
  start();
  ChannelHello other = hello_;
  other.value[static_cast<int>(ChannelHelloField::program) + static_cast<int>(RunSetting::seed)] += 2;
  one_.open(other, 0);
  EXPECT_THAT(failure(), HasSubstr("rank 1 was started with another --seed: 3 there, 1 here"));
  EXPECT_EQ(two_.hear(), "unknown");
}

TEST_P(NodeLastWords, NameARankThatTwoClaim) {
  start();
  two_.say_hello(hello_, executor::kLastWordsChannel);
  EXPECT_THAT(failure(),
              HasSubstr("rank 2 was started with another --rank, or with other --peers: two nodes claim one rank"));
  EXPECT_EQ(one_.hear(), "unknown");
}

/// Rank 1 waits for rank 0, which listens and never answers.
struct WaitsForRankZero {
  WaitsForRankZero() {
    config.rank = 1;
    config.timeout_s = 3600;
    silent = context.net().listen(gpusock::this_thread(), silent_at);
    EXPECT_EQ(context.net().getsockname(silent, silent_at), 0);
    node = std::make_unique<Node>(config, data, LossObserver{.await_others = [] {}});
    at = node->listen(Endpoint::parse("127.0.0.1:0,link=tcp"));
    two = std::make_unique<PlayedNode>(2, at);
    connecting = std::async(std::launch::async, [this] {
      return gpusock::test::error_of([&] { node->connect({silent_at, at, at}); });
    });
  }

  Config config = settings("tcp");
  Dataset data = small_data();
  ExchangePlan plan = make_exchange_plan(config, Plan::make(config, data).layout);
  gpusock::Context context;
  Endpoint silent_at = Endpoint::parse("127.0.0.1:0,link=tcp"), at;
  gpusock::Socket silent = -1;
  std::unique_ptr<Node> node;
  std::unique_ptr<PlayedNode> two;
  std::future<std::string> connecting;
};

TEST(NodeThatConnects, SaysAtOnceThatAnotherNodeHasOtherSettings) {
  WaitsForRankZero rank;
  ChannelHello other = hello_of(rank.config, rank.data, rank.plan);
  other.value[static_cast<int>(ChannelHelloField::program) + static_cast<int>(RunSetting::seed)] += 2;
  rank.two->open(other, executor::kLastWordsChannel);
  EXPECT_THAT(rank.connecting.get(), HasSubstr("rank 2 was started with another --seed"));
}

TEST(NodeThatConnects, HearsAtOnceThatAnotherNodeHasFailed) {
  WaitsForRankZero rank;
  rank.two->connect(hello_of(rank.config, rank.data, rank.plan));
  rank.two->say({.why = Why::lost, .rank = 0});
  EXPECT_EQ(rank.connecting.get(), "rank 1: lost rank 0: rank 2 has lost it, and told so");
}

TEST(NodeThatConnects, CanBeInterrupted) {
  WaitsForRankZero rank;
  const ChannelHello hello = hello_of(rank.config, rank.data, rank.plan);
  rank.two->connect(hello);
  rank.two->open(hello, executor::channels_of(rank.plan.schedules, 1).back().number);  // rank 1 has taken the first one
  rank.node->request_stop();
  EXPECT_EQ(rank.connecting.get(), "interrupted");
  EXPECT_EQ(rank.two->hear(), "interrupted");
}

INSTANTIATE_TEST_SUITE_P(, NodeLastWords, ::testing::Values("p2p", "tcp"),
                         [](const auto& link) { return std::string(link.param); });

}  // namespace
}  // namespace last_words_test
