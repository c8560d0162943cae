// What the checker refuses in hand-written schedules, and what it counts.
#include "param_sync/schedule/check.hpp"
#include "param_sync/schedule/check_price.hpp"
#include "param_sync/schedule/schemes.hpp"
#include "tests/support/error_of.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace {

using namespace param_sync::schedule;
using gpusock::test::error_of;

Op send(int chunk, int to, std::vector<OpRef> after = {}) {
  return {Kind::send, chunk, 1, kNobody, to, 0, std::move(after)};
}
Op receive(Kind kind, int chunk, int from, std::vector<OpRef> after = {}) {
  return {kind, chunk, 1, from, kNobody, 0, std::move(after)};
}
Op apply(int chunk) { return {Kind::apply, chunk, 1, kNobody, kNobody, 0, {}}; }

Schedule by_hand(int chunks, std::vector<std::vector<Lane>> ranks, Result result = Result::all_reduce) {
  Schedule schedule;
  schedule.scheme = "by hand";
  schedule.chunks = chunks;
  schedule.result = result;
  schedule.workers = static_cast<int>(ranks.size());
  for (auto& lanes : ranks) schedule.ranks.push_back({std::move(lanes)});
  return schedule;
}

std::string check_problem(const Schedule& schedule) {
  return error_of<Error>([&] { check(schedule); });
}

void expect_problem(const Schedule& schedule, const std::string& says) {
  const std::string problem = check_problem(schedule);
  EXPECT_NE(problem.find(says), std::string::npos) << problem;
}

TEST(Check, CountsWhatAScheduleCosts) {
  const Schedule pair = by_hand(
      1, {{{receive(Kind::recv_reduce, 0, 1), send(0, 1)}}, {{send(0, 0), receive(Kind::recv, 0, 0)}}});
  const Counts counts = check(pair);
  EXPECT_EQ(counts.depth, 2);
  EXPECT_EQ(counts.edges, (std::vector<Edge>{{0, 1, 1, 1}, {1, 0, 1, 1}}));
  EXPECT_EQ(counts.ranks, (std::vector<Work>{{1, 1, 1, 2, 1, 1, 1, 1}, {1, 1, 0, 1, 1, 0, 1, 0}}));
}

TEST(Check, OneRankHasNothingToDo) {
  EXPECT_EQ(check_problem(by_hand(3, {{}})), "");
  EXPECT_EQ(check_problem(by_hand(3, {{{}}})), "");
}

TEST(Check, EveryResultIsKnown) {
  const Lane root{send(0, 1), send(1, 1)}, other{receive(Kind::recv, 0, 0), receive(Kind::recv, 1, 0)};
  EXPECT_EQ(check_problem(by_hand(2, {{root}, {other}}, Result::broadcast)), "");
  expect_problem(by_hand(2, {{root}, {other}}), "chunk 0 at rank 0 lacks rank 1's contribution");

  const Schedule gather = by_hand(
      2, {{{send(0, 1)}, {receive(Kind::recv, 1, 1)}}, {{send(1, 0)}, {receive(Kind::recv, 0, 0)}}},
      Result::all_gather);
  EXPECT_EQ(check_problem(gather), "");
  Schedule to_one = by_hand(2, {{{receive(Kind::recv, 1, 1)}}, {{send(1, 0)}}}, Result::gather);
  EXPECT_EQ(check_problem(to_one), "");
  to_one.root = 1;
  expect_problem(to_one, "gather: chunk 0 at rank 1 ends without any data");
  Schedule scatter = by_hand(
      2, {{{send(1, 1)}, {receive(Kind::recv_reduce, 0, 1)}}, {{send(0, 0)}, {receive(Kind::recv_reduce, 1, 0)}}},
      Result::reduce_scatter);
  EXPECT_EQ(check_problem(scatter), "");
  scatter.ranks[0].lanes.pop_back();
  scatter.ranks[1].lanes.erase(scatter.ranks[1].lanes.begin());
  expect_problem(scatter, "reduce_scatter: chunk 0 at rank 0 lacks rank 1's contribution");

  Schedule server = by_hand(
      1, {{{receive(Kind::recv_reduce, 0, 1), apply(0), send(0, 1)}}, {{send(0, 0), receive(Kind::recv, 0, 0)}}},
      Result::parameter_server);
  EXPECT_EQ(check_problem(server), "");
  server.result = Result::all_reduce;
  expect_problem(server, "ends with weights, not with a sum");
}

TEST(Check, WhoWaitsInADeadlockIsNamed) {
  Op first = receive(Kind::recv_reduce, 0, 1), second = receive(Kind::recv_reduce, 0, 0);
  expect_problem(by_hand(1, {{{first, send(0, 1)}}, {{second, send(0, 0)}}}),
                 "rank 0, lane 0, op 0: recv_reduce of chunk 0 from rank 1 waits for a message");
  const OpRef self_lane{0, 1};
  expect_problem(by_hand(1, {{{send(0, 1, {self_lane}), send(0, 1)}}, {{}}}), "waits for an op of its \"after\"");
}

/// The first chunks of a message come round the ring while its last ones are still sent.
TEST(Check, AMessageThatMayBeginBeforeAnotherOfItsChannelHasEndedIsRefused) {
  for (const int count : {1, 3}) {
    const Op first{Kind::send, 0, count, kNobody, 1, 0, {}}, again{Kind::recv_send, 0, count, 2, 1, 0, {}};
    const Op sum{Kind::recv_reduce_send, 0, count, 0, 2, 0, {}}, pass_on{Kind::recv_send, 0, count, 0, 2, 0, {}};
    const Op last_sum{Kind::recv_reduce_send, 0, count, 1, 0, 0, {}}, last{Kind::recv, 0, count, 1, kNobody, 0, {}};
    Schedule ring = by_hand(count, {{{first}, {again}}, {{sum, pass_on}}, {{last_sum, last}}});
    if (count == 1) {
      EXPECT_EQ(check_problem(ring), "");
      continue;
    }
    expect_problem(ring, "nothing orders it and rank 0, lane 0, op 0, which sends on the same channel");
    ring.ranks[0].lanes[1][0].after = {{0, 0}};
    EXPECT_EQ(check_problem(ring), "");
  }
}

TEST(Check, AScheduleThatNeedsRoomForMoreThanOneChunkIsRefused) {
  // Both send all that they have before they receive: that ends only where rings hold all of it.
  const Op send_two{Kind::send, 0, 2, kNobody, 1, 0, {}}, send_other{Kind::send, 2, 2, kNobody, 0, 0, {}};
  const Op recv_two{Kind::recv, 0, 2, 0, kNobody, 0, {}}, recv_other{Kind::recv, 2, 2, 1, kNobody, 0, {}};
  expect_problem(by_hand(4, {{{send_two, recv_other}}, {{send_other, recv_two}}}, Result::all_gather),
                 "send of chunks 0 to 1 to rank 1 waits for room in the ring");
  EXPECT_EQ(check_problem(by_hand(4, {{{send_two}, {recv_other}}, {{send_other}, {recv_two}}}, Result::all_gather)),
            "");
}

TEST(Check, OpsWithoutAnOrderMustNotShareAChunk) {
  // Rank 0 adds from two others in two lanes at once.
  const auto with = [](std::vector<OpRef> after) {
    const Op one = receive(Kind::recv_reduce, 0, 1), two = receive(Kind::recv_reduce, 0, 2, std::move(after));
    return by_hand(1, {{{one}, {two}, {send(0, 1, {{0, 0}, {1, 0}}), send(0, 2)}},
                       {{send(0, 0), receive(Kind::recv, 0, 0)}},
                       {{send(0, 0), receive(Kind::recv, 0, 0)}}});
  };
  expect_problem(with({}), "nothing orders it and rank 0, lane");
  EXPECT_EQ(check_problem(with({{0, 0}})), "");
}

TEST(Check, AnOrderThatMessagesMakeCounts) {
  // Rank 0 sends in one lane and receives in the other. The answer comes after the message: they never meet.
  EXPECT_EQ(check_problem(by_hand(
                1, {{{send(0, 1)}, {receive(Kind::recv, 0, 1)}}, {{receive(Kind::recv_reduce, 0, 0), send(0, 0)}}})),
            "");
}

TEST(Check, LanesThatShareAChannelNeedAnOrder) {
  const auto with = [](std::vector<OpRef> after) {
    return by_hand(
        2, {{{send(0, 1)}, {send(1, 1, std::move(after))}}, {{receive(Kind::recv, 0, 0), receive(Kind::recv, 1, 0)}}},
        Result::broadcast);
  };
  EXPECT_NE(check_problem(with({})), "");
  EXPECT_EQ(check_problem(with({{0, 0}})), "");
}

TEST(Check, MessagesAndOpsMustNameTheSameChunks) {
  const Op both{Kind::send, 0, 2, kNobody, 1, 0, {}};
  expect_problem(by_hand(2, {{{both}}, {{receive(Kind::recv, 0, 0), receive(Kind::recv, 1, 0)}}}, Result::broadcast),
                 "the message that comes is that of rank 0, lane 0, op 0, send of chunks 0 to 1 to rank 1");
}

TEST(Check, ContributionsAreCountedExactly) {
  expect_problem(by_hand(1, {{{send(0, 1), send(0, 1), receive(Kind::recv, 0, 1)}},
                             {{receive(Kind::recv_reduce, 0, 0), receive(Kind::recv_reduce, 0, 0), send(0, 0)}}}),
                 "holds rank 0's contribution more than once");
  expect_problem(by_hand(1, {{{send(0, 1)}}, {{}}}), "nobody receives the message of rank 0, lane 0, op 0");
}

TEST(Check, ASummationNodeHasNoDataOfItsOwn) {
  Schedule schedule = by_hand(
      1, {{{send(0, 2), receive(Kind::recv, 0, 2)}},
          {{send(0, 2), receive(Kind::recv, 0, 2)}},
          {{receive(Kind::recv, 0, 0), receive(Kind::recv_reduce, 0, 1), send(0, 0), send(0, 1)}}});
  schedule.workers = 2;
  EXPECT_EQ(check_problem(schedule), "");
  schedule.ranks[2].lanes[0][0].kind = Kind::recv_reduce;
  expect_problem(schedule, "rank 2, lane 0, op 0, recv_reduce of chunk 0 from rank 0: chunk 0 holds no data yet");
}

TEST(Check, TheOptimizerIsAppliedToWholeSumsAndOnce) {
  Lane owner{receive(Kind::recv_reduce, 0, 1), apply(0), send(0, 1)};
  const Lane worker{send(0, 0), receive(Kind::recv, 0, 0)};
  const auto with = [&](const Lane& ops) { return by_hand(1, {{ops}, {worker}}, Result::parameter_server); };
  expect_problem(with({owner[1], owner[0], owner[2]}), "chunk 0 lacks rank 1's contribution");
  expect_problem(with({owner[0], owner[1], owner[1], owner[2]}), "the optimizer was applied already");
  expect_problem(with({owner[0], owner[2]}), "ends without the optimizer applied");
}

/// Rank 1 adds twice, in two lanes: a signal that goes through rank 0 orders the two.
TEST(Check, ASignalOrdersOpsAndMovesNoChunk) {
  const Op signal_back{Kind::send, 0, 0, kNobody, 2, 1, {}}, await_back{Kind::recv, 0, 0, 1, kNobody, 1, {}};
  const Schedule right = by_hand(
      1, {{{send(0, 1)}, {receive(Kind::recv, 0, 1, {{0, 0}})}},
          {{receive(Kind::recv_reduce, 0, 0), signal_back}, {receive(Kind::recv_reduce, 0, 2), send(0, 0), send(0, 2)}},
          {{await_back, send(0, 1)}, {receive(Kind::recv, 0, 1, {{0, 1}})}}});
  const Counts counts = check(right);
  EXPECT_EQ(counts.depth, 4);
  EXPECT_EQ(counts.edges, (std::vector<Edge>{{0, 1, 1, 1}, {1, 0, 1, 1}, {1, 2, 2, 1}, {2, 1, 1, 1}}));
  Schedule unordered = right;
  unordered.ranks[1].lanes[0].pop_back();
  unordered.ranks[2].lanes[0].erase(unordered.ranks[2].lanes[0].begin());
  unordered.ranks[2].lanes[1][0].after = {{0, 0}};
  expect_problem(unordered, "nothing orders it and rank 1, lane");
  Schedule unheard = right;
  unheard.ranks[2].lanes[0].erase(unheard.ranks[2].lanes[0].begin());
  unheard.ranks[2].lanes[1][0].after = {{0, 0}};
  EXPECT_NE(check_problem(unheard), "");
  Schedule early = right;
  early.ranks[1].lanes[0].pop_back();
  expect_problem(early, "it does not end");
}

TEST(Check, NumbersOutOfRangeAreRefused) {
  const Schedule right = by_hand(
      2, {{{send(0, 1), send(1, 1)}}, {{receive(Kind::recv, 0, 0), receive(Kind::recv, 1, 0)}}}, Result::broadcast);
  ASSERT_EQ(check_problem(right), "");
  const auto with = [&](auto change) {
    Schedule schedule = right;
    change(schedule, schedule.ranks[0].lanes[0][0]);
    return schedule;
  };
  expect_problem(with([](Schedule&, Op& op) { op.to = 2; }), "\"to\" is 2, but ranks are 0 to 1");
  expect_problem(with([](Schedule&, Op& op) { op.to = 0; }), "\"to\" is rank 0 itself");
  expect_problem(with([](Schedule&, Op& op) { op.to = kNobody; }), "\"to\" is missing");
  expect_problem(with([](Schedule&, Op& op) { op.from = 1; }), "this op has no \"from\"");
  expect_problem(with([](Schedule&, Op& op) { op.count = 3; }), "3 chunks from 0 on, but chunks are 0 to 1");
  expect_problem(with([](Schedule&, Op& op) { op.chunk = -1; }), "chunks from -1 on");
  expect_problem(with([](Schedule&, Op& op) { op.count = -1; }), "-1 chunks from 0 on");
  expect_problem(with([](Schedule&, Op& op) { op = {Kind::apply, 0, 0, kNobody, kNobody, 0, {}}; }),
                 "apply of 0 chunks: only send and recv can be without chunks");
  expect_problem(with([](Schedule&, Op& op) {
                   op.chunk = 2;
                   op.count = 0;
                 }),
                 "0 chunks from 2 on, but chunks are 0 to 1");
  expect_problem(with([](Schedule&, Op& op) { op.channel = kChannelsMax; }), "channels are 0 to");
  expect_problem(with([](Schedule&, Op& op) { op.after = {{1, 0}}; }), "\"after\" names lane 1, but");
  expect_problem(with([](Schedule&, Op& op) {
                   op.after = {{0, 2}};
                 }),
                 "\"after\" names op 2 of lane 0, which has 2 ops");
  expect_problem(with([](Schedule&, Op& op) { op.after = {{0, 0}}; }), "\"after\" names the op itself");
  expect_problem(with([](Schedule& schedule, Op&) { schedule.workers = 3; }), "\"workers\" is 3, not 1 to 2");
  expect_problem(with([](Schedule& schedule, Op&) { schedule.root = 2; }), "\"root\" is 2, not 0 to 1");
  expect_problem(with([](Schedule& schedule, Op&) { schedule.ranks.clear(); }), "\"nodes\" is 0, not 1 to 1024");
}

TEST(Check, AScheduleTooLargeToCheckIsRefusedAtOnce) {
  Schedule schedule;
  schedule.chunks = kChunksMax;
  schedule.workers = kNodesMax;
  schedule.ranks.resize(kNodesMax);
  expect_problem(
      schedule,
      "checking it would take 328705 MiB (328705 for chunks at ranks, 1 for clocks of lanes), more than 1024");
}

/// Each lane has a clock, with an entry for each lane of its rank.
TEST(Check, LanesWithoutOpsArePricedByTheirSquare) {
  for (const int ranks : {16, 64}) {
    const Schedule lanes = by_hand(
        1, std::vector<std::vector<Lane>>(static_cast<std::size_t>(ranks), std::vector<Lane>(kLanesMax)));
    expect_problem(lanes, fmt::format("{} for clocks of lanes", ranks * 128 + 1));
  }
}

TEST(Check, WorkIsPricedByChunksNotByOps) {
  Schedule sends = by_hand(1, {{{}}, {{}}});
  sends.chunks = kChunksMax;
  sends.ranks[0].lanes[0].assign(3000, {Kind::send, 0, kChunksMax, kNobody, 1, 0, {}});
  expect_problem(sends, "billion steps, more than 21.5: make chunks larger");
}

/// Rank 0 has a chunk in one lane and then in another: only rank 1's answer orders the two. So clocks have entries of
/// all ranks' lanes, and other ranks have many.
TEST(Check, ClocksOfAllRanksArePricedWhereMessagesOrderOps) {
  Schedule schedule = by_hand(
      1, {{{send(0, 1)}, {receive(Kind::recv, 0, 1)}}, {{receive(Kind::recv_reduce, 0, 0), send(0, 0)}}});
  EXPECT_EQ(check_problem(schedule), "");
  for (int i = 0; i < 5; ++i) schedule.ranks.push_back({std::vector<Lane>(kLanesMax)});
  expect_problem(schedule, "for clocks of lanes");
  EXPECT_NO_THROW(require_affordable(price_of_check(schedule, Known::within_rank)));
}

/// What generators make is checked, up to the sizes that docs/schedules.md promises.
// Making them would take more memory than a machine has.
TEST(Check, SchedulesThatNobodyCouldCheckAreRefusedBeforeTheyAreMade) {
  struct Wanted {
    const char* scheme;
    int nodes, chunks;
  };
  for (const Wanted& wanted :
       {Wanted{"mesh", 1024, 1 << 20}, Wanted{"ring", 64, 1 << 20}, Wanted{"butterfly", 512, 1 << 16}}) {
    Request request;
    request.nodes = wanted.nodes;
    request.chunks = wanted.chunks;
    EXPECT_NE(error_of<Error>([&] { generate(wanted.scheme, request); }).find("make chunks larger"), std::string::npos)
        << wanted.scheme;
  }
}

TEST(Check, PricesOfLargeSchedulesOfGeneratorsAreAffordable) {
  const auto is_affordable = [](const char* scheme, int nodes, int chunks) {
    Request request;
    request.nodes = nodes;
    request.chunks = chunks;
    EXPECT_NO_THROW(require_affordable(price_of_check(generate(scheme, request), Known::within_rank))) << scheme;
  };
  is_affordable("ring", 1024, 256);
  is_affordable("ring", 4, 1 << 20);
  is_affordable("mesh", 128, 128);
  is_affordable("ps:even", 512, 512);
  EXPECT_NO_THROW(require_affordable({0, 0, kCheckOpBytesMax, kCheckStepsMax}));
  EXPECT_THROW(require_affordable({0, 0, kCheckOpBytesMax + 1, 0}), Error);
  is_affordable("tree:binary", 1024, 16);
}

}  // namespace
