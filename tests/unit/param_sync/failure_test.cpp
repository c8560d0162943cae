#include "settings/config.hpp"
#include "plan/layer_schemes.hpp"
#include "report/failure.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>

namespace param_sync {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const gpusock::Endpoint kPeer = gpusock::Endpoint::parse("127.0.0.1:7002,link=fabric");

std::string told(const Failure& failure, int rank, const gpusock::Endpoint& at) {
  return describe(failure, rank, at, make_layout(std::vector<std::uint32_t>{36, 16, 8}, 2));
}

TEST(Failure, NamesWhoLostWhom) {
  EXPECT_EQ(told({FailureKind::receive, 2, ECONNRESET}, 0, kPeer),
            "rank 0: lost rank 2: connection reset by peer (ECONNRESET), at 127.0.0.1:7002, while receiving from it");
}

TEST(Failure, TellsAnOrderlyEndFromAReset) {
  EXPECT_THAT(told({FailureKind::send, 1, 0}, 3, {}), StartsWith("rank 3: lost rank 1: it closed the connection"));
}

// A peer that said nothing for two seconds was said to have ended the run.
TEST(Failure, SaysOfASilentPeerOnlyWhatIsKnown) {
  EXPECT_EQ(told({.kind = FailureKind::silent, .teller = 2}, 0, {}),
            "rank 0: rank 2 has ended a connection, and has not said why; the lost rank is unknown");
  EXPECT_EQ(told({.kind = FailureKind::told, .teller = 2}, 0, {}),
            "rank 0: rank 2 has ended the run, and says why; the lost rank is unknown");
}

TEST(Failure, SaysWhichSettingDiffers) {
  EXPECT_THAT(told({FailureKind::mismatch, 1, EPROTO, RunSetting::seed, 1, 2}, 0, {}),
              HasSubstr("another --seed: 2 there, 1 here"));
}

// Two ranks with auto and other --prices were sent to look at --scheme, which was the same.
TEST(Failure, NamesThePricesWhereSchemesDifferAndTheLayerAsTheSummaryDoes) {
  const auto code = [](const char* second) { return code_of({{"ps", ""}, {second, ""}}); };
  const Failure failure{FailureKind::mismatch, 1, EPROTO, RunSetting::scheme, code("mesh"), code("ring")};
  EXPECT_THAT(
      told(failure, 0, {}),
      HasSubstr("another --scheme (or --prices, by which auto chooses): layer 16 x 8 has ring there, mesh here"));
}

// A node with another link was said to be no gpusock, or to be absent.
TEST(Failure, SaysThatLinksMayDiffer) {
  for (const int error : {EPROTO, ECONNREFUSED, ECONNRESET}) {
    const std::string text = told({FailureKind::connect, 1, error}, 0, kPeer);
    EXPECT_THAT(text, HasSubstr("ll nodes need the same --link"));
    EXPECT_THAT(text, ::testing::Not(HasSubstr("link=tcp")));
  }
}

// A node that is not up is refused until it is given up; that --peers is wrong explains no other error.
TEST(Failure, SaysWhatToDoAboutTheError) {
  EXPECT_THAT(told({FailureKind::connect, 1, ECONNREFUSED}, 0, kPeer),
              HasSubstr("refused (ECONNREFUSED). Start that node, or correct --peers"));
  setenv("GPUSOCK_FABRIC_PROVIDER", "tpc", 1);
  const std::string text = told({FailureKind::connect, 1, ENODEV}, 0, kPeer);
  unsetenv("GPUSOCK_FABRIC_PROVIDER");
  EXPECT_THAT(text, StartsWith("rank 0: cannot reach rank 1 at 127.0.0.1:7002: no such device (ENODEV): "
                               "GPUSOCK_FABRIC_PROVIDER=tpc names "));
  EXPECT_THAT(text, HasSubstr("unset it, or name one"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("--peers")));
  EXPECT_THAT(told({FailureKind::listen, 0, EADDRINUSE}, 0, kPeer),
              HasSubstr("in use (EADDRINUSE): another process listens there"));
}

TEST(Failure, NamesANodeThatDidNotConnect) {
  EXPECT_EQ(told({FailureKind::accept, 2, ETIMEDOUT}, 0, kPeer).substr(0, 54),
            "rank 0: rank 2 at 127.0.0.1:7002 has not connected: co");
  EXPECT_THAT(told({FailureKind::accept, -1, ETIMEDOUT}, 0, {}), StartsWith("rank 0: not all peers connected"));
  EXPECT_THAT(told({FailureKind::accept, 2, ETIMEDOUT}, 0, kPeer),
              HasSubstr("if it runs, it may itself wait for another node"));
  EXPECT_THAT(told({FailureKind::accept, 2, ENOMEM}, 0, kPeer), ::testing::Not(HasSubstr("if it runs")));
}

// Nodes that were up, but had no descriptors left, were said not to be started.
TEST(Failure, DoesNotSayThatASilentNodeIsDown) {
  EXPECT_THAT(told({FailureKind::connect, 1, ETIMEDOUT}, 0, kPeer), HasSubstr("if it runs"));
  EXPECT_THAT(told({FailureKind::connect, 1, ENOBUFS}, 0, kPeer), HasSubstr("ulimit -n"));
}

TEST(Failure, NodesThatDidNotComeUpAreNamedInOneLine) {
  EXPECT_EQ(describe_missing({3}, 4, 30),
            "rank 3 has not come up within 30 s; raise --timeout if the machine is only slow");
  EXPECT_THAT(describe_missing({0, 2}, 4, 30), StartsWith("ranks 0, 2 have not come up within 30 s; "));
  EXPECT_THAT(describe_missing({0, 1}, 2, 45), StartsWith("none of the 2 nodes has come up within 45 s; "));
}

// On a loaded machine connecting took longer than a short --timeout, and a run whose nodes were all well was given up.
TEST(Failure, IsNoneWhereNodesThatAreAllThereConnectSlowly) {
  Config config;
  config.timeout_s = 0.5;
  EXPECT_EQ(config.connect_timeout_s(), kStartSecondsMin);
  config.timeout_s = 100;
  EXPECT_EQ(config.connect_timeout_s(), 100);
}

TEST(Failure, IsOneWhereNodesOfOthersDoNotComeInTime) {
  Config by_hand, launched;
  by_hand.timeout_s = launched.timeout_s = 0.5;
  by_hand.peers = {"127.0.0.1:7001", "127.0.0.1:7002"};
  launched.launch.emplace();
  EXPECT_EQ(by_hand.connect_timeout_s(), 0.5);
  EXPECT_EQ(launched.connect_timeout_s(), 0.5);
}

TEST(Failure, EveryKindHasAMessageOfItsOwn) {
  for (auto kind = FailureKind::listen; kind <= FailureKind::late;
       kind = static_cast<FailureKind>(static_cast<std::uint32_t>(kind) + 1)) {
    const std::string text = told({kind, 1, ETIMEDOUT, RunSetting::nodes}, 0, kPeer);
    EXPECT_THAT(text, StartsWith("rank 0: "));
    EXPECT_THAT(text, ::testing::Not(HasSubstr("unknown")));
  }
}

}  // namespace
}  // namespace param_sync
