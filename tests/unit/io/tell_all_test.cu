// What a client's handler tells all clients of serve(), in each scope: all of them hear it, in one order.
#include "tests/unit/io/served.cuh"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace gpusock::conformance::server {
namespace {

/// Visitors who take all seats: those of group 0, then those of group 1.
std::vector<std::unique_ptr<Visitor>> take_seats_by_group(Clients& clients, const Endpoint& where) {
  auto seated = take_seats(clients, where);
  std::stable_partition(seated.begin(), seated.end(), [](auto& visitor) { return visitor->ask("group") == "0"; });
  for (unsigned i = 0; i < kGroups * kSeats; ++i) EXPECT_EQ(seated[i]->ask("group"), i < kSeats ? "0" : "1");
  return seated;
}

/// Requests to tell `count` lines, which begin with this letter.
std::string frames(char letter, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += std::string("frame ") + letter + std::to_string(i) + "\n";
  return all;
}

/// The lines that a visitor is told by `tellers`, each of which says its frames, in their order. `own`: what it tells
/// itself, which comes between the beginning and the end of its answers.
std::vector<std::string> hear_frames(Visitor& visitor, const std::string& tellers, int count, char own = 0) {
  std::vector<std::string> heard;
  std::map<char, int> next;
  bool begun = false;
  const std::size_t lines = tellers.size() * static_cast<std::size_t>(count);
  while (heard.size() < lines || begun) {
    const std::string line = visitor.hear();
    if (line == "begin" || line == "end") {
      EXPECT_EQ(begun, line == "end");
      begun = !begun;
      continue;
    }
    heard.push_back(line);
    if (line.empty() || tellers.find(line[0]) == std::string::npos) {
      ADD_FAILURE() << line;
      break;
    }
    EXPECT_TRUE(begun || line[0] != own) << line;
    EXPECT_EQ(line.substr(1), std::to_string(next[line[0]]++)) << line;
  }
  return heard;
}

template <class Scope>
class TellAll : public Server<Scope> {};
TYPED_TEST_SUITE(TellAll, KernelScopes, ScopeName);

TYPED_TEST(TellAll, WhatOneSaysMayGoToAllOfItsGroup) {
  this->start(no_limits(), 1);
  Clients& clients = this->clients_;
  Visitor silent(clients, this->where()), speaker(clients, this->where());
  EXPECT_EQ(speaker.ask("add 1"), "1") << "both are seated now";
  EXPECT_EQ(speaker.ask("some of you"), "of you");
  EXPECT_EQ(speaker.ask("tell all of you"), "all of you");
  EXPECT_EQ(silent.hear(), "all of you");
  EXPECT_EQ(silent.ask("tell thanks"), "thanks");
  EXPECT_EQ(speaker.hear(), "thanks");
}

TYPED_TEST(TellAll, AHandlerMayWriteAndTellBeforeItReads) {
  this->start(no_limits(), 1);
  Clients& clients = this->clients_;
  Visitor silent(clients, this->where()), speaker(clients, this->where());
  EXPECT_EQ(speaker.ask("add 1"), "1") << "both are seated now";
  EXPECT_EQ(speaker.ask("greet"), "greet");
  ASSERT_TRUE(speaker.say("add 1\n"));
  constexpr std::string_view kAnswers = "hello\n2\n";  // "2" is first if the line has come before the call that greets
  EXPECT_TRUE(speaker.take(kGreeting + kAnswers.size()));
  EXPECT_EQ(speaker.ask("add 1"), "3");
  EXPECT_EQ(silent.hear(), "hello");
}

TYPED_TEST(TellAll, WhatOneSaysMayGoToTheClientsOfAllGroups) {
  this->start(no_limits());
  Clients& clients = this->clients_;
  Visitor silent(clients, this->where());
  auto seated = take_seats(clients, this->where(), kGroups * kSeats - 1);
  for (std::size_t i = 0; i < seated.size(); ++i) {
    const std::string words = "all of you " + std::to_string(i);
    ASSERT_TRUE(seated[i]->say("tell " + words + "\nsome only\n"));
    EXPECT_EQ(silent.hear(), words);
    for (auto& visitor : seated) {
      EXPECT_EQ(visitor->hear(), words);
      EXPECT_EQ(visitor->hear(), "only");
    }
  }
  EXPECT_EQ(silent.ask("add 2"), "2");
}

TYPED_TEST(TellAll, AllGroupsMayTellAtTheSameTimeAndAllHearItInOneOrder) {
  this->start(no_limits());
  constexpr int kLines = 80;
  const std::string tellers = "abcd";
  const auto seated = take_seats(this->clients_, this->where());
  for (std::size_t i = 0; i < seated.size(); ++i) ASSERT_TRUE(seated[i]->say(frames(tellers[i], kLines)));
  const auto first = hear_frames(*seated[0], tellers, kLines, tellers[0]);
  for (std::size_t i = 1; i < seated.size(); ++i) {
    EXPECT_EQ(hear_frames(*seated[i], tellers, kLines, tellers[i]), first) << tellers[i];
  }
  for (const auto& visitor : seated) EXPECT_EQ(visitor->ask("add 0"), std::to_string(1 + kLines));
}

TYPED_TEST(TellAll, AGroupMayBeginWhileAnotherOneTells) {
  this->start(no_limits(), 1, 1);
  constexpr int kLines = 80;
  const auto seated = take_seats(this->clients_, this->where(), kSeats);
  EXPECT_EQ(seated[0]->ask("some others"), "others") << "the other group has not begun";
  EXPECT_EQ(seated[1]->hear(), "others");
  ASSERT_TRUE(seated[0]->say(frames('a', kLines)));
  this->begin_absent(1);
  const auto later = take_seats(this->clients_, this->where(), kSeats);
  hear_frames(*seated[0], "a", kLines, 'a');
  hear_frames(*seated[1], "a", kLines);
  ASSERT_TRUE(later[0]->say("some of both\n"));
  for (const auto& visitor : seated) EXPECT_EQ(visitor->hear(), "of both");
  std::string line;
  while ((line = later[0]->hear())[0] == 'a') continue;  // what it came in time for
  EXPECT_EQ(line, "of both");
}

TYPED_TEST(TellAll, AGroupMayEndWhileAnotherOneTells) {
  constexpr int kLines = 80;
  this->start(no_limits());
  auto seated = take_seats_by_group(this->clients_, this->where());
  EXPECT_EQ(seated[0]->ask("close"), "close");
  ASSERT_TRUE(seated[2]->say("some are left\n"));
  for (const auto& visitor : seated) EXPECT_EQ(visitor->hear(), "are left") << "also of the group that accepted";
  const unsigned ending = std::random_device{}() % kGroups * kSeats, staying = kSeats - ending;
  SCOPED_TRACE(ending);
  ASSERT_TRUE(seated[staying]->say(frames('a', kLines)));
  for (unsigned i = 0; i < kSeats; ++i) seated[ending + i].reset();
  hear_frames(*seated[staying], "a", kLines, 'a');
  hear_frames(*seated[staying + 1], "a", kLines);
  ASSERT_TRUE(seated[staying + 1]->say(frames('b', kLines)));
  hear_frames(*seated[staying], "b", kLines);
  hear_frames(*seated[staying + 1], "b", kLines, 'b');
  seated.clear();
  this->expect_end();
}

TYPED_TEST(TellAll, WhatAClientOfAnotherGroupCannotTakeAtOnceComesLater) {
  this->start(no_limits(), kGroups, 0, LinkKind::p2p);  // whose rings alone hold bytes
  const auto seated = take_seats_by_group(this->clients_, this->where());
  for (const unsigned teller : {0u, kSeats}) {
    ASSERT_TRUE(seated[teller]->say("flood\nsome x\n"));
    for (const auto& visitor : seated) EXPECT_TRUE(visitor->take(kFlood));  // the teller goes on once it has taken all
    for (const auto& visitor : seated) {
      EXPECT_EQ(visitor->hear(), "x");
      EXPECT_EQ(visitor->ask("add 0"), "1");
    }
  }
}

TYPED_TEST(TellAll, AClientOfAnotherGroupThatTakesNothingLeavesAndDisturbsNobody) {
  this->start(no_limits(), kGroups, 0, LinkKind::p2p);
  const auto seated = take_seats_by_group(this->clients_, this->where());
  const unsigned deaf = std::random_device{}() % kGroups * kSeats, teller = kSeats - deaf;
  SCOPED_TRACE(deaf);
  for (const auto& visitor : seated) {
    if (visitor != seated[deaf]) {
      EXPECT_EQ(visitor->ask("add -1"), "0");
    }
  }
  ASSERT_TRUE(seated[teller]->say("flood\nflood\nflood\nflood\ntell x\n"));  // more than ring and Writer hold
  for (const auto& visitor : seated) {
    if (visitor == seated[deaf]) continue;
    EXPECT_EQ(visitor->hear(), "x");
    EXPECT_EQ(visitor->ask("add 5"), "5");
  }
  EXPECT_EQ(this->left(Leave::slow, 1), 1u);
  EXPECT_EQ(this->left_total(), 1u) << "of the one that left";
  Visitor late(this->clients_, this->where());
  EXPECT_EQ(late.ask("add 7"), "7") << "in its seat";
}

TYPED_TEST(TellAll, AClientOfAnotherGroupHasUntilItsTimeIsOverToTakeWhatItIsTold) {
  ServerLimits limits = no_limits();
  limits.request_timeout_ns = 20'000'000;
  this->start(limits, kGroups, 0, LinkKind::p2p);
  const auto seated = take_seats_by_group(this->clients_, this->where());
  for (const unsigned stays : {1u, 2u, 3u}) EXPECT_EQ(seated[stays]->ask("add -1"), "0");
  ASSERT_TRUE(seated[kSeats]->say("flood\n"));  // no event comes to the group of the first
  EXPECT_EQ(this->left(Leave::slow, 1), 1u);
  EXPECT_EQ(this->left_total(), 1u);
  EXPECT_EQ(seated[1]->ask("add 2"), "2");
}

TYPED_TEST(TellAll, TellingWaitsForTheHandlersOfOtherGroups) {
  this->start(no_limits());
  const auto seated = take_seats_by_group(this->clients_, this->where());
  ASSERT_TRUE(seated[kSeats]->say("hold\nadd 1\n"));
  EXPECT_TRUE(this->holds());
  ASSERT_TRUE(seated[0]->say("tell x\n"));
  EXPECT_EQ(seated[1]->hear(), "x") << "of the teller's group";
  this->let_go_on();
  for (const char* line : {"2", "x"}) EXPECT_EQ(seated[kSeats]->hear(), line) << "the two requests are one turn";
  for (const unsigned other : {0u, kSeats + 1}) EXPECT_EQ(seated[other]->hear(), "x");
}

TYPED_TEST(TellAll, WhoHasTakenAllThatIsToldIsNotTooSlow) {
  ServerLimits limits = no_limits();
  limits.request_timeout_ns = 20'000'000;
  this->start(limits, 1, 0, LinkKind::p2p);  // whose rings alone hold bytes: the first of the two finds them full
  Clients& clients = this->clients_;
  Visitor subscriber(clients, this->where()), speaker(clients, this->where());
  EXPECT_EQ(subscriber.ask("add 1"), "1");
  ASSERT_TRUE(speaker.say("flood\nhold\ntell x\n"));  // in one turn, so that no event of the subscriber comes between
  EXPECT_TRUE(subscriber.take(kRing)) << "so that its ring has room again";
  this->let_go_on();
  EXPECT_TRUE(subscriber.take(kFlood - kRing));
  EXPECT_EQ(subscriber.hear(), "x");
  EXPECT_EQ(speaker.hear(), "x");
  ASSERT_TRUE(speaker.say("add"));
  EXPECT_EQ(speaker.hear(), "end") << "later than the subscriber's time would have been over";
  EXPECT_EQ(subscriber.ask("add 1"), "2");
}

}  // namespace
}  // namespace gpusock::conformance::server
