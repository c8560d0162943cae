// Peers in different processes of one host: rings are shared, and a process that is killed is noticed.
#include <gpusock/gpusock.hpp>

#include "host_proxy/memory/host_rings.hpp"
#include "tests/support/patience.hpp"
#include "tests/unit/host_proxy/other_user.hpp"
#include "tests/unit/host_proxy/peer_process.hpp"

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace gpusock {
namespace {

class Processes : public testing::TestWithParam<const char*> {
 protected:
  Context context_;
  Net net_ = context_.net();
};

TEST_P(Processes, BytesGoBothWaysAndTheEndIsInOrder) {
  Peer peer(net_, GetParam());
  std::vector<char> sent(300'000), received(sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 7919 >> 3);
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(net_.send(this_thread(), peer.socket, sent.data(), sent.size(), kWaitAll, patience()),
              std::int64_t(sent.size()));
    ASSERT_EQ(net_.recv(this_thread(), peer.socket, received.data(), received.size(), kWaitAll, patience()),
              std::int64_t(received.size()));
    ASSERT_EQ(received, sent);
  }
  Endpoint name;
  ASSERT_EQ(net_.getpeername(peer.socket, name), 0);
  const std::string link = GetParam();
  EXPECT_EQ(to_string(name.link), link == "auto" ? "p2p" : link)
      << "processes of one host share memory unless told otherwise";
  const Context::Stats stats = context_.stats();
  for (const LinkKind kind : {LinkKind::p2p, LinkKind::tcp, LinkKind::fabric}) {
    EXPECT_EQ(stats.of(kind).tx_bytes, name.link == kind ? 20 * sent.size() : 0) << to_string(kind);
  }
  EXPECT_EQ(net_.close(this_thread(), peer.socket), 0);
  const int status = peer.wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the peer saw the end of the stream; status " << status;
}

TEST_P(Processes, AKilledPeerEndsTheWait) {
  Peer peer(net_, GetParam());
  peer.kill(SIGKILL);
  char byte = 0;
  const auto result = net_.recv(this_thread(), peer.socket, &byte, 1, 0, patience());
  if (std::string(GetParam()) == "tcp") {
    EXPECT_TRUE(result == 0 || result == -ECONNRESET) << result;  // the operating system ends a dead process's stream
  } else {
    EXPECT_EQ(result, -ECONNRESET);
    EXPECT_EQ(net_.send(this_thread(), peer.socket, &byte, 1, 0, patience()), -ECONNRESET);
  }
}

TEST_P(Processes, AStoppedPeerCostsTheDeadline) {
  Peer peer(net_, GetParam());
  peer.stop();
  char byte = 'x';
  EXPECT_EQ(net_.send(this_thread(), peer.socket, &byte, 1, 0, patience()), 1);
  EXPECT_EQ(net_.recv(this_thread(), peer.socket, &byte, 1, 0, Deadline::after_ns(10'000'000)), -ETIMEDOUT);
  peer.kill(SIGCONT);
  EXPECT_EQ(net_.recv(this_thread(), peer.socket, &byte, 1, 0, patience()), 1) << "nothing was lost";
}

/// The peer is in the shape of a GPU, this process is not: they meet in host rings.
TEST(ProcessesOfTwoShapes, AHostRingIsFreeWhenItsConnectionHasEnded) {
  const std::string name = "processes-test-" + std::to_string(getpid());
  Options options = Options::from_env();
  options.host_rings = name;
  options.host_connections_max = 1;
  const Context context(options);
  const auto look = [&] { return proxy::HostRings::look_at(proxy::HostRings::path_of(name)); };
  setenv("GPUSOCK_CPU_SHAPE", "gpu", 1);
  setenv("GPUSOCK_HOST_RINGS", (name + ",connections=1").c_str(), 1);
  {
    Peer peer(context.net(), "p2p");
    EXPECT_EQ(look()->in_use, 1u);
    EXPECT_EQ(context.net().close(this_thread(), peer.socket), 0);
    EXPECT_EQ(peer.wait(), 0);
  }
  unsetenv("GPUSOCK_CPU_SHAPE");
  unsetenv("GPUSOCK_HOST_RINGS");
  const Deadline until = patience();
  while (!context.sockets().empty() && !until.passed()) std::this_thread::yield();
  EXPECT_TRUE(context.sockets().empty());
  EXPECT_EQ(look()->in_use, 0u);
  EXPECT_EQ(look()->left_by_dead, 0u);
}

INSTANTIATE_TEST_SUITE_P(Links, Processes, testing::Values("tcp", "p2p", "auto"),
                         [](const auto& kind) { return std::string(kind.param); });
#if defined(GPUSOCK_HAS_FABRIC)
// GPUSOCK_FABRIC_PROVIDER decides which one; so it is named there, and the test runs for each.
INSTANTIATE_TEST_SUITE_P(Fabric, Processes, testing::Values("fabric"),
                         [](const auto& kind) { return std::string(kind.param); });
#endif

}  // namespace
}  // namespace gpusock

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--peer") return gpusock::be_peer(argv[2]);
  if (argc > 2 && std::string(argv[1]) == "--other-user") return gpusock::other_user::act({argv + 2, argv + argc});
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
