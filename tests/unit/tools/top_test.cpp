// What gpusock-top prints.
#include "gpusock/tools/top/table.hpp"

#include <gtest/gtest.h>

namespace gpusock::top {
namespace {

ContextView context_at(std::uint64_t taken_ns, std::uint64_t tx_bytes) {
  ContextView context;
  context.pid = 42;
  context.program = "prog";
  context.snapshot.taken_ns = taken_ns;
  context.snapshot.proxy_steps = taken_ns / 1'000'000;
  context.snapshot.sockets = context.snapshot.records = 1;
  SocketView socket;
  socket.info.handle = 5;
  socket.info.state = SocketState::connected;
  socket.info.link = LinkKind::tcp;
  socket.info.ring_bytes = 1000;
  socket.info.tx_bytes = tx_bytes;
  context.sockets.push_back(socket);
  return context;
}

TEST(Top, NumbersAreShortAndHaveAUnit) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(999), "999");
  EXPECT_EQ(short_number(1000), "1.0K");
  EXPECT_EQ(short_number(9940), "9.9K");
  EXPECT_EQ(short_number(9960), "10K");
  EXPECT_EQ(short_number(999'400), "999K");
  EXPECT_EQ(short_number(999'600), "1.0M");
  EXPECT_EQ(short_number(1.8e19), "18E");
  EXPECT_EQ(short_number(1e30), "1000000000000E") << "never past the last unit";
}

TEST(Top, TimesAreShort) {
  EXPECT_EQ(short_time(0), "0.0s");
  EXPECT_EQ(short_time(59'990'000'000), "59.9s");
  EXPECT_EQ(short_time(60'000'000'000), "1m00s");
  EXPECT_EQ(short_time(3'600'000'000'000), "1h00m");
  EXPECT_EQ(short_time(48ull * 3'600'000'000'000), "2d");
}

TEST(Top, RatesAreBytesOverTheTimeBetweenTwoSnapshots) {
  ContextView before = context_at(1'000'000'000, 500), now = context_at(3'000'000'000, 4500);
  add_rates(now, before);
  EXPECT_DOUBLE_EQ(now.sockets[0].tx_bytes_per_s.value(), 2000);
  EXPECT_DOUBLE_EQ(now.sockets[0].rx_bytes_per_s.value(), 0);
  EXPECT_DOUBLE_EQ(now.steps_per_s.value(), 1000);
}

TEST(Top, ThereIsNoRateWithoutTwoSnapshotsOfTheSameSocket) {
  ContextView before = context_at(0, 500), now = context_at(3'000'000'000, 4500);
  add_rates(now, before);
  EXPECT_FALSE(now.sockets[0].tx_bytes_per_s.has_value()) << "the context had not answered";
  before = context_at(1'000'000'000, 9999);
  add_rates(now, before);
  EXPECT_FALSE(now.sockets[0].tx_bytes_per_s.has_value()) << "counters do not go back";
  before.sockets[0].info.handle = 6;
  now = context_at(3'000'000'000, 4500);
  add_rates(now, before);
  EXPECT_FALSE(now.sockets[0].rx_bytes_per_s.has_value()) << "another socket";
}

TEST(Top, AFullRingAStallAndAStoppedProcessAreSeen) {
  Look look;
  look.contexts.push_back(context_at(1, 0));
  SocketView& socket = look.contexts[0].sockets[0];
  socket.info.tx_ring_fill = 1000;
  socket.info.rx_ring_fill = 1;
  socket.tx_stalled_ns = 4'200'000'000;
  std::string table = make_table(look, 0);
  EXPECT_NE(table.find("100%    1%"), std::string::npos) << table;
  EXPECT_NE(table.find("tx 4.2s"), std::string::npos) << table;
  EXPECT_EQ(table.find("STALLED:"), std::string::npos);
  look.contexts[0].stalled = true;
  look.contexts[0].silent_ns = 9'000'000'000;
  table = make_table(look, 0);
  EXPECT_NE(table.find("STALLED: no answer for 9.0s"), std::string::npos) << table;
}

TEST(Top, ATableIsCutToTheTerminal) {
  EXPECT_EQ(cut("one\ntwo\nthree\n", 2, 80), "one\ntwo\n");
  EXPECT_EQ(cut("one\nthree\n", 9, 3), "one\nthr\n");
  EXPECT_EQ(cut("", 9, 9), "");
}

}  // namespace
}  // namespace gpusock::top
