#include "runs/control.hpp"

#include "tests/support/error_of.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <string>

namespace param_sync {
namespace {

using gpusock::test::error_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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

TEST(Control, ALineThatIsNoMessageIsAClearError) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  ControlSocket here(ends[0]), there(ends[1]);
  for (const std::string line : {"{\"peers\": [", "\x1b\xff", "7", ""}) {
    ASSERT_EQ(send(there.fd(), (line + "\n").data(), line.size() + 1, 0), static_cast<ssize_t>(line.size() + 1));
    const std::string text = error_of([&] { here.receive(); });
    EXPECT_THAT(text, StartsWith("the other process of this run sent \"")) << line;
    EXPECT_THAT(text, HasSubstr("which is no message (a JSON object)")) << line;
    EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; })) << text;
  }
  there.send({{"end", true}});
  EXPECT_TRUE(here.receive()->at("end")) << "the next line is a message again";
}

TEST(Control, WithoutAMessageNothingIsTaken) {
  Sockets sockets;
  bool ended = false;
  EXPECT_FALSE(sockets.here->try_receive(ended).has_value());
  EXPECT_FALSE(ended);
}

}  // namespace
}  // namespace param_sync
