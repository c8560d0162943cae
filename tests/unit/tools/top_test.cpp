// What gpusock-top prints.
#include "gpusock/tools/top/keys.hpp"
#include "gpusock/tools/top/table.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

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

/// A context with sockets whose handles are 1, 2, ….
ContextView context_with(std::uint32_t sockets, std::uint64_t number = 0) {
  ContextView context = context_at(1, 0);
  context.number = number;
  context.snapshot.sockets = context.snapshot.records = sockets;
  context.sockets.assign(sockets, context.sockets[0]);
  for (std::uint32_t i = 0; i < sockets; ++i) context.sockets[i].info.handle = static_cast<std::int32_t>(i + 1);
  return context;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = text.find('\n', start);
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

/// The largest values that each column can have.
SocketView widest_socket() {
  SocketView socket = context_at(1, 0).sockets[0];
  socket.info.handle = 2'147'483'647;
  socket.info.link = LinkKind::fabric;
  socket.info.tx_ring_fill = socket.info.rx_ring_fill = socket.info.ring_bytes;
  socket.info.tx_bytes = socket.info.rx_bytes = ~std::uint64_t{0};
  socket.info.age_ns = 359'999'000'000'000;
  socket.info.link_reason = std::string(150, 'x');
  socket.tx_stalled_ns = 59 * 60'000'000'000ull + 59'000'000'000;
  socket.tx_bytes_per_s = socket.rx_bytes_per_s = 999.4e9;
  socket.info.local = Endpoint::parse("[2001:db8:1111:2222:3333:4444:5555:6666]:65535");
  socket.info.peer = socket.info.local;
  socket.tcp = {1, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u};
  return socket;
}

TEST(Top, FitsEightyColumnsWhateverItShowsAndLosesNoColumn) {
  Look look;
  look.contexts.push_back(context_with(7));
  look.contexts[0].program = std::string(63, 'p');
  for (SocketView& socket : look.contexts[0].sockets) socket = widest_socket();
  look.contexts[0].sockets[1].info.state = SocketState::listening;
  look.contexts[0].sockets[1].info.peer = Endpoint();
  look.contexts[0].sockets[2].info.state = SocketState::failed;
  look.contexts[0].sockets[2].info.error = ENOTRECOVERABLE;
  for (const bool details : {false, true}) {
    TableOptions options;
    options.columns = 80;
    options.details = details;
    const std::string table = make_table(look, 0, options);
    for (const std::string& line : lines_of(table)) EXPECT_LE(line.size(), 80u) << line;
    EXPECT_NE(table.find("2147483647 conn   fabric .."), std::string::npos) << table;
    EXPECT_NE(table.find(":65535"), std::string::npos) << table;
    EXPECT_NE(table.find("999G  999G 100% 100% tx 59m59s"), std::string::npos) << table;
    EXPECT_NE(table.find("listen"), std::string::npos) << table;
    EXPECT_NE(table.find(std::string(strerror(ENOTRECOVERABLE)).substr(0, 20)), std::string::npos) << table;
  }
}

TEST(Top, ANarrowLineSaysThatThePeerHasEnded) {
  Look look;
  look.contexts.push_back(context_with(1));
  look.contexts[0].sockets[0].info.peer = Endpoint::parse("127.0.0.1:9");
  look.contexts[0].sockets[0].info.peer_ended = true;
  TableOptions options;
  options.columns = 80;
  EXPECT_NE(make_table(look, 0, options).find("ended  tcp    127.0.0.1:9 "), std::string::npos);
}

TEST(Top, DetailsAreThoseOfTheOperatingSystem) {
  Look look;
  look.contexts.push_back(context_with(1));
  look.contexts[0].sockets[0].tcp = {1, 45, 20, 201'000, 10, 1448, 3, 2};
  const std::string words = "rtt 0.045+-0.020 ms  retrans 2  cwnd 10x1448 B  unacked 3  rto 201 ms";
  EXPECT_EQ(make_table(look, 0).find("rtt"), std::string::npos) << "nobody asked for details";
  TableOptions options;
  options.details = true;
  EXPECT_NE(make_table(look, 0, options).find(words), std::string::npos) << make_table(look, 0, options);
  EXPECT_NE(make_json(look, 0, false).find("\"retransmits\":2"), std::string::npos);
  look.contexts[0].sockets[0].tcp = {};
  EXPECT_EQ(make_table(look, 0, options).find("rtt"), std::string::npos) << "not on the tcp link, or not known yet";
  EXPECT_NE(make_json(look, 0, false).find("\"tcp\":null"), std::string::npos);
}

TEST(Top, DetailsSayWhoOpenedASocket) {
  Look look;
  look.contexts.push_back(context_with(3));
  look.contexts[0].sockets[0].info.block = 2147483648;
  look.contexts[0].sockets[2].info.state = SocketState::waiting;
  TableOptions options;
  EXPECT_EQ(make_table(look, 0, options).find("opened by"), std::string::npos) << "nobody asked for details";
  options.details = true;
  for (const std::size_t columns : {std::size_t{0}, std::size_t{80}}) {
    options.columns = columns;
    const std::string table = make_table(look, 0, options);
    const std::size_t first = table.find("opened by block 2147483648\n");
    const std::size_t second = table.find("opened by a host thread\n");
    EXPECT_LT(first, second) << table;
    EXPECT_NE(second, std::string::npos) << table;
    EXPECT_EQ(table.find("opened by", second + 1), std::string::npos) << "nobody has accepted it: " << table;
  }
  EXPECT_NE(make_json(look, 0, false).find("\"block\":2147483648"), std::string::npos);
  EXPECT_NE(make_json(look, 0, false).find("\"block\":null"), std::string::npos);
}

/// Handles in the order of the table.
std::vector<int> order_by(const Look& look, Sort sort) {
  TableOptions options;
  options.sort = sort;
  options.columns = 80;
  std::vector<int> handles;
  for (const std::string& line : lines_of(make_table(look, 0, options))) {
    if (const int handle = std::atoi(line.c_str()); handle > 0) handles.push_back(handle);
  }
  return handles;
}

TEST(Top, SocketsComeInTheOrderThatWasAskedFor) {
  Look look;
  look.contexts.push_back(context_with(3));
  auto& sockets = look.contexts[0].sockets;
  sockets[0].info.peer = Endpoint::parse("127.0.0.3:1");
  sockets[1].info.peer = Endpoint::parse("127.0.0.2:1");
  sockets[2].info.peer = Endpoint::parse("127.0.0.1:1");
  sockets[1].tx_bytes_per_s = 5;
  sockets[2].rx_bytes_per_s = 6;
  sockets[0].info.tx_bytes = 9;
  sockets[2].info.rx_bytes = 10;
  sockets[1].info.rx_ring_fill = 1000;
  sockets[0].info.tx_ring_fill = 1;
  sockets[1].rx_stalled_ns = 7;
  sockets[1].info.age_ns = 3;
  sockets[2].info.age_ns = 2;
  sockets[2].tcp.retransmits = 1;
  using Order = std::vector<int>;
  EXPECT_EQ(order_by(look, Sort::socket), (Order{1, 2, 3}));
  EXPECT_EQ(order_by(look, Sort::peer), (Order{3, 2, 1}));
  EXPECT_EQ(order_by(look, Sort::rate), (Order{3, 2, 1}));
  EXPECT_EQ(order_by(look, Sort::bytes), (Order{3, 1, 2}));
  EXPECT_EQ(order_by(look, Sort::fill), (Order{2, 1, 3}));
  EXPECT_EQ(order_by(look, Sort::stalled), (Order{2, 1, 3}));
  EXPECT_EQ(order_by(look, Sort::age), (Order{2, 3, 1}));
  EXPECT_EQ(order_by(look, Sort::retransmits), (Order{3, 1, 2}));
}

TEST(Top, ALimitLeavesSocketsOutAndSaysHowMany) {
  Look look;
  look.contexts.push_back(context_with(5));
  TableOptions options;
  options.limit = 3;
  EXPECT_NE(make_table(look, 0, options).find("and 2 more sockets\n"), std::string::npos);
  options.limit = 4;
  EXPECT_NE(make_table(look, 0, options).find("and 1 more socket\n"), std::string::npos);
  options.limit = 5;
  EXPECT_EQ(make_table(look, 0, options).find("more"), std::string::npos);
}

TEST(Top, AWindowShowsTheTitlesAndTheLinesThatWereScrolledTo) {
  Look look;
  for (const std::uint32_t number : {0u, 1u}) look.contexts.push_back(context_with(20, number));
  const std::string table = make_table(look, 0);
  const std::vector<std::string> all = lines_of(table);
  constexpr std::size_t kTitles = 2, kRows = 12;
  ASSERT_EQ(lines_below_titles(table), all.size() - kTitles);
  ASSERT_EQ(room_in_window(table, kRows), kRows - kTitles - 1);
  const std::vector<std::string> heads = {all[kTitles + 1], all[kTitles + 23]};
  ASSERT_NE(heads[0].find("context 0"), std::string::npos);
  ASSERT_NE(heads[1].find("context 1"), std::string::npos);
  for (std::size_t first = 1; first + kRows < all.size(); ++first) {
    const auto lines = lines_of(make_window(table, first, kRows));
    ASSERT_EQ(lines.size(), kRows);
    EXPECT_NE(lines[0].find("lines " + std::to_string(first + 1) + " to "), std::string::npos) << lines[0];
    EXPECT_EQ(lines[1], all[1]);
    EXPECT_EQ(lines[2], heads[first < 23 ? 0 : 1]) << "which context the lines belong to";
    for (std::size_t i = kTitles + 1; i < kRows; ++i) EXPECT_EQ(lines[i], all[first + i - 1]);
  }
}

TEST(Top, ScrollingStaysWithinTheTable) {
  constexpr std::size_t kLines = 100, kRows = 10;
  EXPECT_EQ(scroll(0, Wish::up, kLines, kRows), 0u);
  EXPECT_EQ(scroll(0, Wish::down, kLines, kRows), 1u);
  EXPECT_EQ(scroll(5, Wish::page_up, kLines, kRows), 0u);
  EXPECT_EQ(scroll(5, Wish::page_down, kLines, kRows), 14u);
  EXPECT_EQ(scroll(85, Wish::page_down, kLines, kRows), 90u);
  EXPECT_EQ(scroll(5, Wish::end, kLines, kRows), 90u);
  EXPECT_EQ(scroll(5, Wish::home, kLines, kRows), 0u);
  EXPECT_EQ(scroll(90, Wish::down, kLines, kRows), 90u);
  EXPECT_EQ(scroll(90, Wish::none, 50, kRows), 40u) << "sockets were closed";
  EXPECT_EQ(scroll(3, Wish::down, 5, kRows), 0u) << "all of it fits";
}

TEST(Top, KeysAreTakenOneByOneAndOthersAreIgnored) {
  std::string typed = "\033[Bj\033OA\033[6~x\033[F\033[9q\033[";
  std::vector<Wish> wishes;
  for (std::size_t before = typed.size() + 1; typed.size() != before;) {
    before = typed.size();
    if (const Wish wish = take_key(typed); wish != Wish::none) wishes.push_back(wish);
  }
  EXPECT_EQ(wishes, (std::vector<Wish>{Wish::down, Wish::down, Wish::up, Wish::page_down, Wish::end, Wish::quit}));
  EXPECT_EQ(typed, "\033[") << "incomplete: the rest may come";
  typed += "5~";
  EXPECT_EQ(take_key(typed), Wish::page_up);
}

TEST(Top, WhatDoesNotFitTheRowsIsCounted) {
  Look look;
  const std::uint32_t sockets[] = {30, 1, 0, 12};
  for (std::uint32_t i = 0; i < 4; ++i) look.contexts.push_back(context_with(sockets[i], i));
  for (const bool details : {false, true}) {
    for (std::size_t rows = 4; rows < 120; ++rows) {
      SCOPED_TRACE("rows " + std::to_string(rows));
      TableOptions options;
      options.columns = 80;
      options.rows = rows;
      options.details = details;
      const auto lines = lines_of(make_table(look, 0, options));
      ASSERT_LE(lines.size(), rows);
      std::uint32_t shown = 0, told = 0, contexts = 0;
      for (const std::string& line : lines) {
        unsigned more = 0;
        if (line.find(" conn ") != std::string::npos) ++shown;
        if (line.find("  pid ") != std::string::npos) ++contexts;
        if (std::sscanf(line.c_str(), " and %u more socket", &more) == 1 && line.find("socket") != std::string::npos)
          told += more;
        if (std::sscanf(line.c_str(), "and %u more context", &more) == 1 && line[0] == 'a') contexts += more;
      }
      EXPECT_EQ(contexts, 4u);
      if (lines.back().find("more context") == std::string::npos) {
        EXPECT_EQ(shown + told, 43u);
      }
    }
  }
}

TEST(Top, ATableIsCutToTheTerminal) {
  EXPECT_EQ(cut("one\ntwo\nthree\n", 2, 80), "one\ntwo\n");
  EXPECT_EQ(cut("one\nthree\n", 9, 3), "one\nthr\n");
  EXPECT_EQ(cut("", 9, 9), "");
}

}  // namespace
}  // namespace gpusock::top
