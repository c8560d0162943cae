// Promises of the control connection: whole messages arrive, and no peer holds it up for longer than its limit.
#include "microbench/control_connection.hpp"
#include "tests/support/error_of.hpp"

#include <gtest/gtest.h>

#include <poll.h>

#include <cerrno>
#include <functional>

namespace bench {
namespace {

constexpr std::uint64_t kPlentyNs = 60'000'000'000;
constexpr std::uint64_t kShortNs = 1'000'000;

/// A connection, and the raw socket at its other end.
class ControlConnectionTest : public testing::Test {
 protected:
  ControlConnectionTest()
      : listener_(listen_tcp(gpusock::Endpoint::parse("127.0.0.1:0,link=tcp"), 1)),
        connection_(ControlConnection::connect(local_of(listener_.get()).host_port(), kPlentyNs)),
        other_(accept()) {}

  void say(const std::string& bytes) const {
    ASSERT_EQ(::send(other_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  void hang_up() { other_ = Descriptor(); }
  /// Until poll() reports what has_message() is to see.
  void await_readable() const {
    pollfd entry{connection_.descriptor(), POLLIN | POLLRDHUP, 0};
    ASSERT_EQ(::poll(&entry, 1, 60'000), 1);
  }

  /// The text of the error that a receive() ends with.
  std::string failure(std::uint64_t limit_ns = kPlentyNs) {
    return gpusock::test::error_of<gpusock::Error>([&] { connection_.receive(limit_ns); });
  }

  static std::string started() { return encode(MessageKind::started, {}); }

  Descriptor listener_;
  ControlConnection connection_;
  Descriptor other_;

 private:
  Descriptor accept() const {
    pollfd entry{listener_.get(), POLLIN, 0};
    ::poll(&entry, 1, -1);
    return Descriptor(::accept(listener_.get(), nullptr, nullptr));
  }
};

TEST_F(ControlConnectionTest, AMessageArrivesWhole) {
  say(started() + encode(MessageKind::refused, Refusal{EBUSY, "no"}));
  EXPECT_EQ(connection_.receive(kPlentyNs).kind, MessageKind::started);
  EXPECT_EQ(connection_.receive(kPlentyNs).kind, MessageKind::refused);
}

TEST_F(ControlConnectionTest, HasAMessageOnceReceiveWouldNotWait) {
  EXPECT_FALSE(connection_.has_message());
  const std::string whole = started();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_FALSE(connection_.has_message()) << i;
    say(whole.substr(i, 1));
  }
  await_readable();
  EXPECT_TRUE(connection_.has_message());
  EXPECT_EQ(connection_.receive(kPlentyNs).kind, MessageKind::started);
  say("GET / HTTP/1.1");
  await_readable();
  EXPECT_TRUE(connection_.has_message());
}

TEST_F(ControlConnectionTest, AnEndWithinAMessageIsNotWaitedFor) {
  say(started().substr(0, 9));
  EXPECT_FALSE(connection_.has_message());
  hang_up();
  await_readable();
  EXPECT_TRUE(connection_.has_message());
}

TEST_F(ControlConnectionTest, WhatIsSentArrives) {
  connection_.send(MessageKind::started, {}, kPlentyNs);
  std::string got(started().size(), '\0');
  ASSERT_EQ(::recv(other_.get(), got.data(), got.size(), MSG_WAITALL), static_cast<ssize_t>(got.size()));
  EXPECT_EQ(got, started());
}

TEST_F(ControlConnectionTest, TheEndBetweenMessagesIsNoError) {
  say(started());
  hang_up();
  EXPECT_TRUE(connection_.receive_or_end(kPlentyNs).has_value());
  EXPECT_FALSE(connection_.receive_or_end(kPlentyNs).has_value());
}

TEST_F(ControlConnectionTest, TheEndWithinAMessageIsAnErrorWhereverItIs) {
  for (const std::size_t cut : {std::size_t{1}, std::size_t{8}, sizeof(Header), sizeof(Header) + 1}) {
    Descriptor listener = listen_tcp(gpusock::Endpoint::parse("127.0.0.1:0,link=tcp"), 1);
    auto connection = ControlConnection::connect(local_of(listener.get()).host_port(), kPlentyNs);
    pollfd entry{listener.get(), POLLIN, 0};
    ::poll(&entry, 1, -1);
    {
      const Descriptor other(::accept(listener.get(), nullptr, nullptr));
      ASSERT_EQ(::send(other.get(), started().data(), cut, MSG_NOSIGNAL), static_cast<ssize_t>(cut));
    }
    EXPECT_THROW(connection.receive_or_end(kPlentyNs), gpusock::Error) << cut << " bytes";
  }
}

TEST_F(ControlConnectionTest, AStrangersGreetingIsToldFromAMessageAtItsEighthByte) {
  say("SSH-2.0-");
  EXPECT_NE(failure().find("is not gpusock-bench"), std::string::npos) << failure();
}

TEST_F(ControlConnectionTest, AMessageThatIsTooLongIsRefusedAtItsHeader) {
  Header header;
  header.kind = static_cast<std::uint32_t>(MessageKind::started);
  header.body_bytes = kBodyBytesMax + 1;
  say(std::string(reinterpret_cast<const char*>(&header), sizeof header));
  await_readable();
  EXPECT_TRUE(connection_.has_message());
  EXPECT_NE(failure().find("sent a message that is not valid"), std::string::npos);
}

TEST_F(ControlConnectionTest, TheLongestMessageArrivesWhole) {
  const std::string body(kBodyBytesMax, ' ');
  Header header;
  header.kind = static_cast<std::uint32_t>(MessageKind::account);
  header.body_bytes = kBodyBytesMax;
  say(std::string(reinterpret_cast<const char*>(&header), sizeof header) + body.substr(1));
  EXPECT_FALSE(connection_.has_message());
  say(" ");
  await_readable();
  EXPECT_TRUE(connection_.has_message());
  EXPECT_EQ(connection_.receive(kPlentyNs).body, body);
}

TEST_F(ControlConnectionTest, SilenceEndsAtTheLimit) {
  EXPECT_NE(failure(kShortNs).find("has said nothing"), std::string::npos);
  say(started().substr(0, sizeof(Header) + 1));  // a message that does not go on
  EXPECT_NE(failure(kShortNs).find("has said nothing"), std::string::npos);
}

TEST_F(ControlConnectionTest, APeerThatReadsNothingHoldsUpASenderNoLongerThanTheLimit) {
  const auto fill = [&] {
    for (int i = 0; i < 1'000'000; ++i) connection_.send(MessageKind::refused, Refusal{1, "x"}, kShortNs);
  };
  try {
    fill();
    FAIL() << "the socket took more than it has room for";
  } catch (const gpusock::Error& error) {
    EXPECT_EQ(error.code().value(), ETIMEDOUT) << error.what();
  }
}

TEST(ControlConnect, APortWhereNobodyListensIsRefused) {
  const TcpAddress any = to_tcp_address(gpusock::Endpoint::parse("127.0.0.1:0,link=tcp"));
  const Descriptor bound(::socket(AF_INET, SOCK_STREAM, 0));  // and does not listen
  ASSERT_EQ(::bind(bound.get(), any.get(), any.bytes), 0);
  const std::string where = local_of(bound.get()).host_port();
  try {
    ControlConnection::connect(where, kPlentyNs);
    FAIL() << "somebody listens there";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find(where), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace bench
