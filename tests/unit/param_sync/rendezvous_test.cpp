// Nodes that come twice to the address where all meet: rank 0 of three. The test plays the others, so that it decides
// which one lives.
#include "param_sync/bootstrap/rendezvous.hpp"
#include "param_sync/bootstrap/rendezvous_messages.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/whole.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

namespace rendezvous_test {
namespace {

using namespace param_sync::bootstrap;
using gpusock::Endpoint;
using gpusock::Socket;
using gpusock::test::receive_whole;
using gpusock::test::send_whole;

constexpr int kNodes = 3;

class RendezvousTest : public ::testing::Test {
 protected:
  RendezvousTest() {
    zero_.where_to_listen();
    all_ = std::async(std::launch::async, [this] { return zero_.exchange_addresses(address(0)); });
  }

  /// A port that is free now.
  Endpoint free_port() const {
    Endpoint at = Endpoint::parse("127.0.0.1:0");
    const Socket listener = net_.listen(gpusock::this_thread(), at);
    EXPECT_GE(listener, 0);
    EXPECT_EQ(net_.getsockname(listener, at), 0);
    net_.close(gpusock::this_thread(), listener);
    return at;
  }
  /// Of nodes; nothing listens there.
  static Endpoint address(int port) { return Endpoint::parse("127.0.0.1:" + std::to_string(1000 + port)); }

  /// A node of this rank, which says that it listens at this port.
  Socket come(std::uint32_t rank, int port) const {
    const Socket socket = net_.connect(gpusock::this_thread(), at_, gpusock::patience());
    EXPECT_GE(socket, 0);
    send_whole(net_, socket, Greeting{.rank = rank, .size = kNodes, .listens = address(port)});
    return socket;
  }
  void leave(Socket socket) const { EXPECT_EQ(net_.close(gpusock::this_thread(), socket), 0); }

  gpusock::Context context_;
  gpusock::Net net_ = context_.net();
  Endpoint at_ = free_port();
  Rendezvous zero_{at_.host_port(), 0, kNodes, gpusock::kPatienceNs};
  std::future<std::vector<Endpoint>> all_;
};

TEST_F(RendezvousTest, ANodeThatIsStartedAgainTakesThePlaceOfTheOneThatHasDied) {
  for (int port = 1; port <= 3; ++port) leave(come(1, port));
  const Socket again = come(1, 4), other = come(2, 5);
  const auto all = all_.get();
  for (const Socket node : {again, other}) {
    const auto answer = receive_whole<Answer>(net_, node);
    EXPECT_EQ(answer.fits, 1u);
    EXPECT_EQ(answer.listens[1].host_port(), address(4).host_port());
  }
  EXPECT_EQ(all.at(1).host_port(), address(4).host_port());
  EXPECT_EQ(all.at(2).host_port(), address(5).host_port());
}

TEST_F(RendezvousTest, ANodeThatLivesKeepsItsPlace) {
  const Socket first = come(1, 1), second = come(1, 2);
  EXPECT_THAT(gpusock::test::error_of([&] { all_.get(); }), ::testing::HasSubstr("that rank already among them"));
  leave(first);
  EXPECT_EQ(receive_whole<Answer>(net_, second).fits, 0u);
}

}  // namespace
}  // namespace rendezvous_test
