#include "runs/control.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sys/socket.h>

#include <memory>
#include <string>

namespace param_sync {
namespace {

struct Sockets {
  Sockets() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) throw std::runtime_error("socketpair");
    here = std::make_unique<ControlSocket>(ends[0]);
    there = std::make_unique<ControlSocket>(ends[1]);
  }
  std::unique_ptr<ControlSocket> here, there;
};

/// A node's report, which may be the last that it says before it ends: it must not get lost.
TEST(Control, AMessageThatIsThereIsTakenWholeHoweverLong) {
  Sockets sockets;
  const std::string longer_than_a_read(100'000, 'x');
  sockets.there->send({{"report", longer_than_a_read}});
  sockets.there->send({{"end", true}});
  sockets.there.reset();
  bool ended = false;
  const auto first = sockets.here->try_receive(ended);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->at("report"), longer_than_a_read);
  EXPECT_TRUE(sockets.here->try_receive(ended).has_value());
  EXPECT_FALSE(ended);
  EXPECT_FALSE(sockets.here->try_receive(ended).has_value());
  EXPECT_TRUE(ended);
}

TEST(Control, WithoutAMessageNothingIsTaken) {
  Sockets sockets;
  bool ended = false;
  EXPECT_FALSE(sockets.here->try_receive(ended).has_value());
  EXPECT_FALSE(ended);
}

}  // namespace
}  // namespace param_sync
