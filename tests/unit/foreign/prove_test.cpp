// The prover: right plans are proved, and each kind of fault is refuted by an example that names it.
#include "maker.hpp"

#include "foreign/prove.hpp"
#include "tests/support/error_of.hpp"

#include <gtest/gtest.h>

namespace {

using namespace foreign_test;
using gpusock::test::error_of;

void expect_proved(const Plan& plan) {
  const Proof proof = prove(plan);
  EXPECT_TRUE(proof.is_proved) << proof.why;
  EXPECT_EQ(proof.why, "");
}

void expect_refuted(const Plan& plan, const std::string& says) {
  const Proof proof = prove(plan);
  EXPECT_FALSE(proof.is_proved) << "should say: " << says;
  EXPECT_NE(proof.why.find(says), std::string::npos) << proof.why;
}

Step& step(Plan& plan, int block, int index) {
  return plan.blocks[static_cast<std::size_t>(block)].steps[static_cast<std::size_t>(index)];
}
void erase(Plan& plan, int block, int index) {
  auto& steps = plan.blocks[static_cast<std::size_t>(block)].steps;
  steps.erase(steps.begin() + index);
}

TEST(ForeignProof, RingsAreProved) {
  for (int ranks = 1; ranks <= 7; ++ranks) {
    const Proof proof = prove(ring(ranks));
    EXPECT_TRUE(proof.is_proved) << ranks << ": " << proof.why;
    EXPECT_EQ(proof.in_a_row, "");
    EXPECT_EQ(proof.bytes_max, 0U);
    EXPECT_EQ(proof.steps, static_cast<std::uint64_t>(4 * ranks * (ranks - 1)));
  }
}

TEST(ForeignProof, ACopyInsteadOfASumIsRefuted) {
  Plan plan = ring(3);
  step(plan, 1, 1).from.clear();
  step(plan, 1, 1).name = "r";
  expect_refuted(plan,
                 "result: output chunk 0 of rank 0 lacks chunk 0 of rank 1 (written last by rank 0, thread block 0, "
                 "step 5 (r))");
}

TEST(ForeignProof, AChunkThatIsAddedTwiceIsRefuted) {
  Plan plan = ring(2);
  step(plan, 0, 2).from.push_back(in(0, 1));
  expect_refuted(plan, "result: output chunk 1 of rank 1 has chunk 1 of rank 0, chunk 1 of rank 1 too many");
}

TEST(ForeignProof, DataThatNoStepWroteAreRefuted) {
  Maker maker(Collective::all_reduce, 1, 1, 1, false);
  maker.move(maker.block(0), {scratch(0, 0)}, {out(0, 0)});
  expect_refuted(maker.plan,
                 "result: output chunk 0 of rank 0 has data that no step wrote, not chunk 0 of rank 0 (written "
                 "last by rank 0, thread block 0, step 0 (cpy))");
  Maker empty(Collective::all_reduce, 1, 1, 1, false);
  expect_refuted(empty.plan, "(no step wrote it)");
  empty.plan.runs_out_of_place = false;
  empty.plan.runs_in_place = true;
  expect_proved(empty.plan);
}

TEST(ForeignProof, EachCollectiveAsksForItsResult) {
  // Two ranks, two chunks. Each rank copies all that it needs from the other rank's input.
  const auto copies = [](Collective collective, std::vector<std::pair<Place, Place>> all, int chunks = 2) {
    Maker maker(collective, 2, chunks, 0, false);
    for (int rank = 0; rank < 2; ++rank) maker.block(rank);
    for (const auto& [from, to] : all) maker.move(to.rank, {from}, {to});
    return maker.plan;
  };
  expect_proved(copies(Collective::all_gather,
                       {{in(0, 0), out(0, 0)}, {in(1, 0), out(0, 1)}, {in(0, 0), out(1, 0)}, {in(1, 0), out(1, 1)}}));
  expect_proved(copies(Collective::all_to_all,
                       {{in(0, 0), out(0, 0)}, {in(1, 0), out(0, 1)}, {in(0, 1), out(1, 0)}, {in(1, 1), out(1, 1)}}));
  expect_proved(copies(Collective::send_receive, {{in(1, 0), out(0, 0)}, {in(0, 0), out(1, 0)}}, 1));
  Plan broadcast = copies(Collective::broadcast, {{in(1, 0), out(0, 0)}, {in(1, 0), out(1, 0)}}, 1);
  broadcast.root = 1;
  expect_proved(broadcast);
  broadcast.root = 0;
  expect_refuted(broadcast, "lacks chunk 0 of rank 0 and has chunk 0 of rank 1 too many");
  Maker scatter(Collective::reduce_scatter, 2, 2, 0, false);
  for (int rank = 0; rank < 2; ++rank) scatter.move(scatter.block(rank), {in(0, rank), in(1, rank)}, {out(rank, 0)});
  expect_proved(scatter.plan);
  Maker reduce(Collective::reduce, 2, 1, 0, false);
  reduce.move(reduce.block(1), {in(0, 0), in(1, 0)}, {out(1, 0)});
  reduce.plan.root = 1;
  expect_proved(reduce.plan);
}

TEST(ForeignProof, InPlaceAndOutOfPlaceAreTwoProofs) {
  Maker maker(Collective::all_gather, 2, 2);
  for (int rank = 0; rank < 2; ++rank) maker.move(maker.block(rank), {in(1 - rank, 0)}, {out(rank, 1 - rank)});
  expect_proved(maker.plan);  // its own chunk is there
  maker.plan.runs_out_of_place = true;
  expect_refuted(maker.plan, "out of place: result: output chunk 0 of rank 0 has data that no step wrote");
  Maker scatter(Collective::reduce_scatter, 2, 2);  // its output is a part of its input
  for (int rank = 0; rank < 2; ++rank) scatter.move(scatter.block(rank), {in(0, rank), in(1, rank)}, {in(rank, rank)});
  expect_proved(scatter.plan);
}

TEST(ForeignProof, AMissingAwaitIsARace) {
  expect_proved(pair_with_awaits());
  Plan plan = pair_with_awaits();
  erase(plan, 1, 0);
  expect_refuted(plan,
                 "race: rank 0, thread block 1, step 1 (cpy) writes input chunk 0 of rank 0, and rank 0, thread "
                 "block 0, step 0 (s) reads it; nothing orders the two");
  plan = pair_with_awaits();
  step(plan, 1, 0).awaited_step = 0;  // too early
  expect_refuted(plan, "scratch chunk 0 of rank 0, and ");
}

TEST(ForeignProof, TwoWritersRace) {
  Maker maker(Collective::all_reduce, 1, 1, 1, false);
  for (int i = 0; i < 2; ++i) maker.move(maker.block(0), {in(0, 0)}, {out(0, 0)});
  expect_refuted(maker.plan,
                 "thread block 1, step 0 (cpy) writes output chunk 0 of rank 0, and rank 0, thread block 0, step 0 "
                 "(cpy) writes it; nothing orders the two");
  maker.plan.blocks[1].steps.clear();
  maker.await(1, 0, 0);
  maker.move(1, {in(0, 0)}, {out(0, 0)});
  expect_proved(maker.plan);
}

TEST(ForeignProof, BothReceiveFirstIsADeadlock) {
  Plan plan = ring(2);
  std::swap(step(plan, 0, 0), step(plan, 0, 1));
  std::swap(step(plan, 1, 0), step(plan, 1, 1));
  expect_refuted(plan,
                 "deadlock: rank 0, thread block 0, step 1 (rrc) waits for a message of rank 1 on channel 0; rank 1, "
                 "thread block 0, step 1 (rrc) waits for a message of rank 0 on channel 0");
}

TEST(ForeignProof, BlocksThatAwaitEachOtherAreADeadlock) {
  Maker maker(Collective::all_reduce, 1, 1);
  maker.block(0);
  maker.block(0);
  maker.await(0, 1, 0);
  maker.await(1, 0, 0);
  expect_refuted(maker.plan,
                 "deadlock: rank 0, thread block 0, step 0 (nop) waits for thread block 1 to do step 0; rank 0, "
                 "thread block 1, step 0 (nop) waits for thread block 0 to do step 0");
}

TEST(ForeignProof, MessagesMeetStepsOfTheirLength) {
  Maker maker(Collective::broadcast, 2, 2);
  maker.connection(0, 1);
  maker.block(0);
  maker.block(1);
  maker.send(0, 0, in(0, 0), 2);
  maker.receive(1, 0, in(1, 0));
  maker.receive(1, 0, in(1, 1));
  expect_refuted(maker.plan,
                 "rank 1, thread block 0, step 0 (r) receives 1 chunks, but the message that comes is of rank 0, "
                 "thread block 0, step 0 (s), which sends 2");
  maker.plan.blocks[1].steps.clear();
  maker.receive(1, 0, in(1, 0), 2);
  expect_proved(maker.plan);
}

TEST(ForeignProof, MessagesThatNobodyReceivesAreRefuted) {
  Maker maker(Collective::all_reduce, 2, 1, 0);
  maker.connection(0, 1);
  maker.block(0);
  maker.send(0, 0, in(0, 0));
  expect_refuted(maker.plan, "no step of rank 1 receives the message of rank 0, thread block 0, step 0 (s)");
}

/// Both ranks send all of their chunks before they receive.
Plan exchange(int chunks) {
  Maker maker(Collective::all_reduce, 2, chunks, chunks);
  maker.connection(0, 1);
  maker.connection(1, 0);
  for (int rank = 0; rank < 2; ++rank) {
    maker.block(rank);
    maker.send(rank, rank, in(rank, 0), chunks);
    maker.receive(rank, 1 - rank, scratch(rank, 0), chunks);
    maker.move(rank, {in(rank, 0), scratch(rank, 0)}, {in(rank, 0)}, chunks);
  }
  maker.plan.slots = 2;
  maker.plan.piece_bytes = 1000;
  return maker.plan;
}

TEST(ForeignProof, RoomIsThatOfTheProtocol) {
  expect_proved(exchange(2));
  expect_refuted(exchange(3),
                 "with data of more than 1500 bytes: deadlock: rank 0, thread block 0, step 0 (s) waits for room "
                 "on channel 0 to rank 1; rank 1,");
  Plan plan = exchange(8);
  plan.bytes_max = 2000;  // 8 chunks of 250 bytes: 4 of them in each of two pieces
  expect_proved(plan);
  EXPECT_EQ(prove(plan).bytes_max, 2000U);
  plan.bytes_max = 2001;
  expect_refuted(plan, "with data of more than 2000 bytes: deadlock");
}

TEST(ForeignProof, CountersOrderWhatThreadsDidBeforeTheyMet) {
  expect_proved(pair_with_counters());
  EXPECT_EQ(prove(pair_with_counters()).in_a_row, "");
  Plan plan = pair_with_counters();
  erase(plan, 0, 4);  // a signal without a sync after the move
  expect_refuted(plan,
                 "race: rank 1, thread block 0, step 8 (cpy) reads scratch chunk 0 of rank 1, and rank 0, thread block "
                 "0, step 3 (cpy) writes it; nothing orders the two");
  plan = pair_with_counters();
  erase(plan, 0, 7);  // a wait without a sync after it
  expect_refuted(plan, "nothing orders the two");
  plan = pair_with_counters();
  erase(plan, 0, 6);  // a signal that no step awaits: the move races, too
  expect_refuted(plan, "race");
  plan.syncs_itself = true;
  expect_refuted(plan, "race");
}

TEST(ForeignProof, RelaxedSignalsDoNotOrderData) {
  Plan plan = pair_with_counters();
  step(plan, 0, 0).relaxed = step(plan, 1, 0).relaxed = true;  // those that only tell that a plan has begun
  expect_proved(plan);
  EXPECT_EQ(prove(plan).in_a_row, "");
  step(plan, 0, 5).relaxed = true;
  expect_refuted(plan, "nothing orders the two");
  EXPECT_TRUE(prove(plan).if_relaxed);
  step(plan, 0, 5).relaxed = false;
  step(plan, 1, 6).relaxed = true;  // a relaxed wait for a signal that is not
  expect_refuted(plan, "nothing orders the two");
  EXPECT_TRUE(prove(plan).if_relaxed);
  Plan wrong = ring(2);
  wrong.blocks[0].steps[1].from.clear();
  EXPECT_FALSE(prove(wrong).if_relaxed);
}

TEST(ForeignProof, CallsInARowNeedToKnowThatTheOthersHaveBegun) {
  Plan plan = pair_with_counters();
  for (int rank = 0; rank < 2; ++rank) {
    auto& steps = plan.blocks[static_cast<std::size_t>(rank)].steps;
    steps.erase(steps.begin(), steps.begin() + 3);
  }
  const Proof proof = prove(plan);
  EXPECT_TRUE(proof.is_proved) << proof.why;
  EXPECT_NE(proof.in_a_row.find("race: "), std::string::npos) << proof.in_a_row;
  EXPECT_NE(proof.in_a_row.find("scratch chunk 0"), std::string::npos) << proof.in_a_row;
}

TEST(ForeignProof, ASignalTooManyIsRefuted) {
  Plan plan = pair_with_counters();
  Step extra = step(plan, 0, 0);
  plan.blocks[0].steps.push_back(extra);
  expect_refuted(
      plan, "counter 1 is 1 at the end, not 0 as before, signalled last by rank 0, thread block 0, step 0 (signal)");
}

TEST(ForeignProof, CountersThatTwoBlocksUseInNoOrderAreNotUnderstood) {
  Maker maker(Collective::all_reduce, 1, 1);
  for (int i = 0; i < 3; ++i) maker.block(0);
  maker.counter();
  maker.signal(0, 0);
  maker.signal(1, 0);
  maker.wait(2, 0);
  maker.wait(2, 0);
  EXPECT_NE(error_of<Error>([&] { prove(maker.plan); }).find("signal counter 0 in no fixed order"), std::string::npos);
  maker.plan.blocks[1].steps.clear();
  maker.signal(0, 0);
  maker.plan.blocks[2].steps.pop_back();
  maker.wait(1, 0);
  EXPECT_NE(error_of<Error>([&] { prove(maker.plan); }).find("wait for counter 0 in no fixed order"),
            std::string::npos);
}

TEST(ForeignProof, ACounterThatBeginsAboveZeroLetsBlocksRunAhead) {
  Maker maker(Collective::all_reduce, 1, 2, 2, false);
  maker.block(0);
  maker.block(0);
  const int full = maker.counter();
  const int free = maker.counter(1);
  for (int i = 0; i < 2; ++i) {
    maker.wait(0, free);
    maker.move(0, {in(0, i)}, {scratch(0, 0)});
    maker.signal(0, full);
    maker.wait(1, full);
    maker.move(1, {scratch(0, 0)}, {out(0, i)});
    maker.signal(1, free);
  }
  expect_proved(maker.plan);
  maker.plan.counters[static_cast<std::size_t>(free)].initial = 2;  // the second move may overwrite the first
  expect_refuted(maker.plan, "race: ");
  maker.plan.counters[static_cast<std::size_t>(free)].initial = 0;
  expect_refuted(maker.plan,
                 "deadlock: rank 0, thread block 0, step 0 (wait) waits for counter 1; 1 more thread blocks wait");
}

TEST(ForeignProof, BarriersOrderTheBlocksOfARank) {
  const auto make = [](int blocks_of_barrier) {
    Maker maker(Collective::all_reduce, 1, 2, 2, false);
    maker.without_syncs();
    const int barrier = maker.barrier(blocks_of_barrier);
    for (int i = 0; i < 2; ++i) {
      maker.block(0);
      maker.move(i, {in(0, i)}, {scratch(0, i)});
      maker.meet(i, barrier);
      maker.move(i, {scratch(0, 1 - i)}, {out(0, 1 - i)});
      maker.meet(i, barrier);
    }
    return maker.plan;
  };
  expect_proved(make(2));
  Plan plan = make(2);
  erase(plan, 0, 1);
  erase(plan, 1, 1);
  expect_refuted(plan, "race: ");
  expect_refuted(make(3), "deadlock: rank 0, thread block 0, step 1 (barrier) waits for the barrier");
  EXPECT_NE(error_of<Error>([&] { prove(make(1)); }).find("the barrier waits for 1 thread blocks, but 2 come to it"),
            std::string::npos);
}

/// An all-reduce of two ranks by packets.
Plan packets(bool doubles) {
  Maker maker(Collective::all_reduce, 2, 1, 1);
  maker.without_syncs();
  maker.plan.doubles_scratch = doubles;
  for (int rank = 0; rank < 2; ++rank) {
    maker.block(rank);
    maker.move(rank, {in(rank, 0)}, {packet(1 - rank, 0)});
    maker.move(rank, {in(rank, 0), packet(rank, 0, true)}, {in(rank, 0)});
  }
  return maker.plan;
}

TEST(ForeignProof, PacketsOrderTheirReadersAfterTheirWriters) {
  expect_proved(packets(true));
  EXPECT_EQ(prove(packets(true)).in_a_row, "");
  const Proof single = prove(packets(false));
  EXPECT_TRUE(single.is_proved);
  EXPECT_NE(single.in_a_row.find("scratch packet chunk 0"), std::string::npos) << single.in_a_row;
  Plan plan = packets(true);
  erase(plan, 0, 0);
  expect_refuted(
      plan, "deadlock: rank 1, thread block 0, step 1 (cpy) waits for the flags of scratch packet chunk 0 of rank 1");
  plan = packets(true);
  plan.blocks[0].steps.insert(plan.blocks[0].steps.begin(), step(plan, 0, 0));  // the same packet twice
  expect_proved(plan);
  step(plan, 0, 1).from = {in(0, 0), in(0, 0)};  // another packet
  expect_refuted(plan, "race: ");
  plan = packets(true);
  step(plan, 0, 1).from[1].waits_for_packets = false;
  expect_refuted(plan, "race: ");
}

TEST(ForeignProof, ThreadsDoTheirOwnWordsOnly) {
  const auto make = [](Place second_from, Place second_to, bool with_sync) {
    Maker maker(Collective::all_reduce, 1, 2, 4, false);
    maker.without_syncs();
    maker.block(0);
    maker.move(0, {in(0, 0)}, {scratch(0, 0)}, 2);
    if (with_sync) maker.sync(0);
    maker.move(0, {second_from}, {second_to}, second_to.cell == 0 ? 2 : 1);
    if (second_to.cell != 0) maker.move(0, {scratch(0, 0)}, {out(0, 0)});
    return maker.plan;
  };
  expect_proved(make(scratch(0, 0), out(0, 0), false));
  expect_proved(make(scratch(0, 1), out(0, 1), true));
  expect_refuted(
      make(scratch(0, 1), out(0, 1), false),
      "race: rank 0, thread block 0, step 1 (cpy) reads scratch chunk 1 of rank 0, and rank 0, thread block 0, step "
      "0 (cpy) writes it; the block's threads do not meet between the two");
  Maker overlap(Collective::all_reduce, 1, 3, 0);
  overlap.move(overlap.block(0), {in(0, 0)}, {in(0, 1)}, 2);
  expect_refuted(overlap.plan, "both are the same step");
}

TEST(ForeignProof, AProxyMovesDataBesideItsBlock) {
  const auto make = [](bool syncs, bool flushes) {
    Maker maker(Collective::broadcast, 2, 1, 1);
    maker.without_syncs();
    const int queue = maker.queue(0);
    const int counter = maker.counter();
    maker.block(0);
    maker.block(1);
    maker.move(0, {in(0, 0)}, {scratch(0, 0)});
    if (syncs) maker.sync(0);
    maker.move(0, {scratch(0, 0)}, {in(1, 0)}).queue = queue;
    maker.signal(0, counter).queue = queue;
    if (flushes) maker.flush(0, queue);
    if (flushes) maker.sync(0);
    maker.move(0, {in(0, 0)}, {scratch(0, 0)});
    maker.wait(1, counter);
    return maker.plan;
  };
  expect_proved(make(true, true));
  expect_refuted(make(false, true),
                 "race: the proxy of rank 0, for step 1 (cpy) reads scratch chunk 0 of rank 0, and rank 0, "
                 "thread block 0, step 0 (cpy) writes it");
  expect_refuted(make(true, false),
                 "race: the proxy of rank 0, for step 2 (cpy) reads scratch chunk 0 of rank 0, and "
                 "rank 0, thread block 0, step 4 (cpy) writes it; nothing orders the two");
  Plan plan = make(true, true);
  plan.blocks[1].steps.clear();
  expect_refuted(plan, "race: the caller of rank 1 reads output chunk 0 of rank 1, and the proxy of rank 0");
}

TEST(ForeignProof, WhatTakesTooMuchIsRefusedBeforeItBegins) {
  Maker wide(Collective::all_reduce, 1, 1);
  wide.counter();
  for (int i = 0; i < kBlocksMax; ++i) {
    wide.block(0);
    for (int j = 0; j < 100; ++j) wide.signal(i, 0);
  }
  EXPECT_NE(error_of<Error>([&] { prove(wide.plan); }).find("MiB of clocks"), std::string::npos);
  Maker large(Collective::all_reduce, 1000, kChunksMax);
  EXPECT_NE(error_of<Error>([&] { prove(large.plan); }).find("cells in all"), std::string::npos);
  Maker doubling(Collective::all_reduce, 1, 1, 1, false);
  doubling.block(0);
  doubling.move(0, {in(0, 0)}, {scratch(0, 0)});
  for (int i = 0; i < 60; ++i) doubling.move(0, {scratch(0, 0), scratch(0, 0)}, {scratch(0, 0)});
  EXPECT_NE(error_of<Error>([&] { prove(doubling.plan); }).find("parts"), std::string::npos);
}

}  // namespace
