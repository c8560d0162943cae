// Ranks of this process agree over sockets. Who has ended is known at once, so most tests wait for nothing.
#include "param_sync/membership.hpp"
#include "param_sync/membership/messages.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/whole.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace membership_test {
namespace {

using gpusock::Endpoint;
using gpusock::test::error_of;
using param_sync::Member;
using param_sync::Membership;
using param_sync::View;
using ::testing::HasSubstr;

constexpr std::uint64_t kLongNs = 60'000'000'000;  // not reached
constexpr std::uint64_t kShortNs = 1'000'000'000;  // waited for

std::vector<int> ids(const View& view) {
  std::vector<int> all;
  for (const Member& member : view.members) all.push_back(member.id);
  return all;
}

/// Where a rank's group listens in its next view; nothing does.
Endpoint listens(int id, int view = 1) {
  return Endpoint::of("127.0.0.1", static_cast<std::uint16_t>(1000 * view + id));
}

class MembershipTest : public ::testing::Test {
 protected:
  void start(int ranks) {
    View first{1, {}};
    for (int id = 0; id < ranks; ++id) {
      ranks_.push_back(std::make_unique<Membership>(id));
      first.members.push_back({id, ranks_.back()->listen(Endpoint::parse("127.0.0.1:0")), listens(id, 0)});
    }
    for (const auto& rank : ranks_) rank->begin(first);
  }
  Membership& rank(int id) { return *ranks_[static_cast<std::size_t>(id)]; }
  void lose(int id) { ranks_[static_cast<std::size_t>(id)].reset(); }

  std::future<View> next(int id, std::uint64_t patience_ns = kLongNs) {
    return std::async(std::launch::async, [this, id, patience_ns] { return rank(id).next(listens(id), patience_ns); });
  }
  /// All of these ranks agree on a view of them, and know where the others' groups are.
  void expect_view_of(const std::vector<int>& those, std::uint64_t patience_ns = kLongNs) {
    std::vector<std::future<View>> views;
    for (const int id : those) views.push_back(next(id, patience_ns));
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < those.size(); ++i) {
      const View view = views[i].get();
      EXPECT_EQ(ids(view), those);
      if (i == 0) number = view.number;
      EXPECT_EQ(view.number, number);
      EXPECT_EQ(rank(those[i]).view().number, number);
      for (const Member& member : view.members) {
        EXPECT_EQ(member.listens, listens(member.id));
        EXPECT_TRUE(member.meets.port != 0);
      }
    }
    EXPECT_GT(number, last_number_);
    last_number_ = number;
  }

  std::vector<std::unique_ptr<Membership>> ranks_;
  std::uint64_t last_number_ = 1;
};

TEST_F(MembershipTest, OthersGoOnWithoutALostRank) {
  start(4);
  lose(2);
  expect_view_of({0, 1, 3});
}

TEST_F(MembershipTest, OneLossFollowsAnother) {
  start(5);
  lose(0);
  lose(3);
  expect_view_of({1, 2, 4});
  lose(1);
  expect_view_of({2, 4});
  lose(4);
  expect_view_of({2});
}

TEST_F(MembershipTest, TwoThatSuspectEachOtherGoOnTogether) {
  start(2);
  expect_view_of({0, 1});
  expect_view_of({0, 1});
}

TEST_F(MembershipTest, TooFewDoNotGoOn) {
  start(5);
  for (const int id : {0, 1, 2}) lose(id);
  auto three = next(3), four = next(4);
  for (auto* one : {&three, &four}) {
    try {
      one->get();
      FAIL() << "two of five go on";
    } catch (const gpusock::Error& error) {
      EXPECT_EQ(error.code().value(), EHOSTUNREACH);
      EXPECT_THAT(error.what(),
                  HasSubstr("of 5 ranks came to agree on the next view: too few to go on without ranks 0,"));
    }
  }
}

TEST_F(MembershipTest, HalfGoesOnOnlyWithTheLowest) {
  start(4);
  lose(0);
  lose(1);
  auto two = next(2), three = next(3);
  EXPECT_THAT(error_of([&] { two.get(); }), HasSubstr("2 of 4 ranks came"));
  EXPECT_THAT(error_of([&] { three.get(); }), HasSubstr("too few to go on without ranks 0, 1"));
}

TEST_F(MembershipTest, ALateRankIsToldThatTheOthersHaveGoneOn) {
  start(3);
  expect_view_of({0, 1}, kShortNs);
  auto zero = next(0);  // waits for rank 1
  auto two = next(2);
  try {
    two.get();
    FAIL() << "a rank that was left out is back";
  } catch (const gpusock::Error& error) {
    EXPECT_EQ(error.code().value(), ESTALE);
    EXPECT_THAT(error.what(), HasSubstr("the others have gone on without rank 2, as ranks 0, 1"));
  }
  auto one = next(1);
  EXPECT_EQ(ids(one.get()), ids(zero.get()));
}

TEST_F(MembershipTest, StrangersDelayNobody) {
  start(3);
  lose(2);
  gpusock::Context context;
  const gpusock::Net net = context.net();
  using namespace param_sync::membership;
  Packet junk{};
  junk.magic = 7;
  Message hello;
  hello.from = 2;
  hello.view = {1, 0b111};
  hello.ids = 3;
  hello.addresses = {{listens(2), listens(2)}};
  const Packet of_another_run = pack(hello, 5);
  const auto stranger = [&](std::size_t bytes, const Packet& packet) {
    const gpusock::Socket socket = net.connect(gpusock::this_thread(), rank(0).view().members[0].meets,
                                               gpusock::patience());
    EXPECT_GE(socket, 0);
    EXPECT_EQ(net.send(gpusock::this_thread(), socket, &packet, bytes), static_cast<std::int64_t>(bytes));
  };
  stranger(0, junk);
  stranger(sizeof(Packet) / 2, of_another_run);
  stranger(sizeof(Packet), junk);
  stranger(sizeof(Packet), of_another_run);
  const gpusock::Socket plain = net.connect(
      gpusock::this_thread(), rank(0).view().members[0].meets.with_link(gpusock::LinkKind::tcp), gpusock::patience());
  EXPECT_EQ(net.send(gpusock::this_thread(), plain, "GET / HTTP/1.0\r\n\r\n", 18), 18);
  expect_view_of({0, 1});
}

// --- Ranks that join -------------------------------------------------------------------------------------------------

const std::vector<std::uint64_t> kSettings{7, 8};

class JoinTest : public MembershipTest {
 protected:
  void start_open(int ranks) {
    start(ranks);
    for (const auto& rank : ranks_) rank->open(kSettings);
  }
  /// Asks a rank to let another one join.
  std::future<View> join(int member, std::unique_ptr<Membership>& joiner,
                         std::vector<std::uint64_t> settings = kSettings) {
    joiner = std::make_unique<Membership>();
    const Endpoint meets = rank(member).view().members[static_cast<std::size_t>(member)].meets;
    return std::async(std::launch::async, [meets, &joiner, settings] {
      const Endpoint here = joiner->reach(meets, kLongNs);
      EXPECT_EQ(here.port, 0);
      joiner->listen(here);
      return joiner->join(listens(50), settings, kLongNs);
    });
  }
  void wait_for_applicants(int member) {
    while (!rank(member).has_applicants()) std::this_thread::yield();
  }
  /// A rank asks, and ends once the member has seen that.
  void ask_and_end(int member) {
    std::unique_ptr<Membership> joiner;
    auto joined = join(member, joiner);
    wait_for_applicants(member);
    joiner->interrupt();
    EXPECT_THAT(error_of([&] { joined.get(); }), HasSubstr("asking to join"));
  }
};

TEST_F(JoinTest, ARankJoinsAndIsAMemberLikeOthers) {
  start_open(2);
  EXPECT_FALSE(rank(1).has_applicants());
  std::unique_ptr<Membership> joiner;
  auto joined = join(1, joiner);
  wait_for_applicants(1);
  auto zero = next(0), one = next(1);
  for (View view : {zero.get(), one.get(), joined.get()}) {
    EXPECT_EQ(ids(view), (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(view.number, rank(0).view().number);
    EXPECT_EQ(view.members[0].listens, listens(0));
    EXPECT_EQ(view.members[2].listens, listens(50));
  }
  EXPECT_EQ(joiner->id(), 2);
  EXPECT_FALSE(rank(1).has_applicants());
  ranks_.push_back(std::move(joiner));
  lose(0);  // 1 and 2 are more than half of three
  expect_view_of({1, 2});
}

TEST_F(JoinTest, AnIdIsNotGivenAgain) {
  start_open(1);
  for (int id = 1; id < 4; ++id) {
    std::unique_ptr<Membership> joiner;
    auto joined = join(0, joiner);
    wait_for_applicants(0);
    next(0).get();
    EXPECT_EQ(ids(joined.get()), (std::vector<int>{0, id}));
    joiner.reset();
    EXPECT_EQ(ids(next(0).get()), std::vector<int>{0});
  }
}

TEST_F(JoinTest, NotMoreJoinThanThereAre) {
  start_open(1);
  std::unique_ptr<Membership> a, b;
  auto first = join(0, a);
  wait_for_applicants(0);
  auto second = join(0, b);
  EXPECT_EQ(ids(next(0).get()), (std::vector<int>{0, 1}));
  first.get();
  ranks_.push_back(std::move(a));
  wait_for_applicants(0);
  auto zero = next(0), one = next(1);
  EXPECT_EQ(ids(second.get()), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(ids(zero.get()), ids(one.get()));
}

TEST_F(JoinTest, WithOtherSettingsIsRefused) {
  start_open(2);
  std::unique_ptr<Membership> joiner;
  auto joined = join(0, joiner, {7, 9});
  while (joined.wait_for(std::chrono::seconds(0)) != std::future_status::ready) EXPECT_FALSE(rank(0).has_applicants());
  try {
    joined.get();
    FAIL() << "a rank with other settings has joined";
  } catch (const param_sync::OtherSettings& error) {
    EXPECT_EQ(error.index, 1);
    EXPECT_EQ(error.theirs, 8);
  }
  expect_view_of({0, 1});
}

TEST_F(JoinTest, NobodyJoinsWithoutOpen) {
  start(1);
  std::unique_ptr<Membership> joiner;
  auto joined = join(0, joiner);
  while (joined.wait_for(std::chrono::seconds(0)) != std::future_status::ready) EXPECT_FALSE(rank(0).has_applicants());
  EXPECT_THAT(error_of([&] { joined.get(); }), HasSubstr("lets no nodes join"));
}

TEST_F(JoinTest, OneThatEndsIsForgotten) {
  start_open(2);
  ask_and_end(0);
  while (rank(0).has_applicants()) std::this_thread::yield();
  expect_view_of({0, 1});
}

TEST_F(JoinTest, OneThatEndsWhileTheyAgreeIsLeftOutNext) {
  start_open(2);
  ask_and_end(0);
  auto zero = next(0), one = next(1);  // it was noted before
  zero.get(), one.get();
  expect_view_of({0, 1});
}

TEST_F(JoinTest, HearsThatTheMemberHasEnded) {
  start_open(2);
  std::unique_ptr<Membership> joiner;
  auto joined = join(1, joiner);
  wait_for_applicants(1);
  lose(1);
  EXPECT_THAT(error_of([&] { joined.get(); }), HasSubstr("has ended before it let this node in"));
}

TEST_F(JoinTest, BetweenAgreementsLateRanksAreToldAndStrangersRefused) {
  start_open(3);
  expect_view_of({0, 1}, kShortNs);
  gpusock::Context context;
  const gpusock::Net net = context.net();
  const gpusock::Socket stranger = net.connect(gpusock::this_thread(), rank(0).view().members[0].meets,
                                               gpusock::patience());
  const param_sync::membership::Packet junk{};
  EXPECT_EQ(net.send(gpusock::this_thread(), stranger, &junk, sizeof junk), static_cast<std::int64_t>(sizeof junk));
  auto two = next(2);
  while (two.wait_for(std::chrono::seconds(0)) != std::future_status::ready) EXPECT_FALSE(rank(0).has_applicants());
  EXPECT_THAT(error_of([&] { two.get(); }), HasSubstr("the others have gone on without rank 2"));
  expect_view_of({0, 1});
}

TEST_F(JoinTest, InvalidArgumentsAreRefused) {
  start_open(1);
  Membership joiner;
  EXPECT_EQ(joiner.id(), -1);
  EXPECT_THAT(error_of([&] { joiner.begin(rank(0).view()); }), HasSubstr("begins with join()"));
  EXPECT_THAT(error_of([&] { joiner.has_applicants(); }), HasSubstr("needs a view"));
  EXPECT_THAT(error_of([&] { joiner.join(listens(9), kSettings, kLongNs); }), HasSubstr("needs reach() and listen()"));
  EXPECT_THAT(error_of([&] { rank(0).join(listens(9), kSettings, kLongNs); }), HasSubstr("rank 0 has an id"));
  EXPECT_THAT(error_of([&] { rank(0).reach(listens(9), kLongNs); }), HasSubstr("rank 0 has an id"));
  EXPECT_THAT(error_of([&] { rank(0).open(std::vector<std::uint64_t>(17)); }), HasSubstr("at most 16 numbers"));
  joiner.listen(joiner.reach(rank(0).view().members[0].meets, kLongNs));
  EXPECT_THAT(error_of([&] { joiner.join({}, kSettings, kLongNs); }), HasSubstr("join() needs the address and port"));
  EXPECT_THAT(error_of([&] { joiner.join(listens(9), kSettings, 0); }), HasSubstr("join() needs a patience"));
}

TEST_F(MembershipTest, InterruptEndsTheWait) {
  start(2);
  auto one = next(1);  // waits for rank 0, which does not answer
  rank(1).interrupt();
  try {
    one.get();
    FAIL();
  } catch (const gpusock::Error& error) {
    EXPECT_EQ(error.code().value(), ECANCELED);
  }
}

TEST_F(MembershipTest, InvalidArgumentsAreRefused) {
  start(2);
  const View first = rank(0).view();
  EXPECT_THAT(error_of([&] { Membership(64); }), HasSubstr("a rank's id is 0 to 63, not 64"));
  EXPECT_THAT(error_of([&] { rank(0).begin(first); }), HasSubstr("has begun already"));
  EXPECT_THAT(error_of([&] { rank(0).listen(Endpoint::parse("127.0.0.1:0")); }), HasSubstr("listens already"));
  EXPECT_THAT(error_of([&] { rank(0).next({}, kLongNs); }), HasSubstr("needs the address and port"));
  EXPECT_THAT(error_of([&] { rank(0).next(listens(0), 0); }), HasSubstr("patience from 1 ms to 1 h"));
  Membership other(1);
  EXPECT_THAT(error_of([&] { other.next(listens(1), kLongNs); }), HasSubstr("call begin()"));
  EXPECT_THAT(error_of([&] { other.begin(first); }), HasSubstr("needs listen()"));
  other.listen(Endpoint::parse("127.0.0.1:0"));
  const auto refused = [&](auto change) {
    View wrong = first;
    change(wrong);
    return error_of([&] { other.begin(wrong); });
  };
  EXPECT_THAT(refused([](View& it) { it.number = 2; }), HasSubstr("has number 1, not 2"));
  EXPECT_THAT(refused([](View& it) { std::swap(it.members[0], it.members[1]); }), HasSubstr("ascending order"));
  EXPECT_THAT(refused([](View& it) { it.members.pop_back(); }), HasSubstr("other members only"));
  EXPECT_THAT(refused([](View& it) { it.members[0].meets.port = 0; }), HasSubstr("where rank 0 meets"));
}

}  // namespace
}  // namespace membership_test
