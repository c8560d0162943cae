#include "plans.hpp"

#include "tests/unit/foreign/maker.hpp"
#include "tests/unit/foreign/mscclpp_maker.hpp"

#include "foreign/read.hpp"

#include <functional>
#include <utility>

namespace traces_test {
namespace {

using namespace foreign_test;
using Operations = std::vector<Json>;

/// From rank 0 to 1 to 2 and back: s, rrs, rrc or rrcs, rcs, r. A second block of rank 2 copies.
Plan chain(bool sends_at_once) {
  Maker maker(Collective::all_reduce, 3, 1, 1);
  for (int rank = 0; rank < 3; ++rank) maker.block(rank);
  const int up = maker.connection(0, 1), top = maker.connection(1, 2), down = maker.connection(2, 1),
            back = maker.connection(1, 0);
  maker.send(0, up, in(0, 0));
  maker.receive(0, back, in(0, 0));
  Step& passes = maker.move(1, {in(1, 0)}, {});
  passes.receives = up;
  passes.sends = top;
  maker.receive(1, down, in(1, 0)).sends = back;
  Step& adds = maker.receive_add(2, top, in(2, 0));
  if (sends_at_once) adds.sends = down;
  maker.move(2, {in(2, 0)}, {scratch(2, 0)}, 0);  // of no chunks
  if (!sends_at_once) maker.send(2, down, in(2, 0));
  const int copier = maker.block(2);
  maker.await(copier, 2, 0);
  maker.move(copier, {in(2, 0)}, {scratch(2, 0)});
  return maker.plan;
}

/// Rank 0 writes into rank 1's memory, but only rank 2 tells rank 1 so.
Plan told_by_a_third_rank() {
  Maker maker(Collective::all_reduce, 3, 1, 2);
  for (int rank = 0; rank < 3; ++rank) maker.block(rank);
  const int first = maker.counter(), second = maker.counter(), to_0 = maker.counter(), to_2 = maker.counter();
  maker.move(0, {in(0, 0)}, {scratch(1, 0)});
  maker.signal(0, first);
  maker.wait(2, first);
  maker.move(2, {in(2, 0)}, {scratch(1, 1)});
  maker.signal(2, second);
  maker.wait(1, second);
  maker.move(1, {in(1, 0), scratch(1, 0), scratch(1, 1)}, {in(0, 0), in(1, 0), in(2, 0)});
  maker.signal(1, to_0);
  maker.signal(1, to_2);
  maker.wait(0, to_0);
  maker.move(0, {in(0, 0)}, {scratch(0, 0)});
  maker.wait(2, to_2);
  maker.move(2, {in(2, 0)}, {scratch(2, 0)});
  return maker.plan;
}

/// A block of rank 0, or a queue, writes into rank 1's memory. Another block tells rank 1 so, when it has heard of it
/// by `how`.
Plan told_by_another_block(Kind how) {
  Maker maker(Collective::all_reduce, 2, 1, 1);
  const int writer = maker.block(0), teller = maker.block(0), reader = maker.block(1);
  const int heard = maker.counter(), told = maker.counter(), back = maker.counter(), barrier = maker.barrier(2);
  const int queue = maker.queue(0);
  Step& write = maker.move(writer, {in(0, 0)}, {scratch(1, 0)});
  if (how == Kind::flush) write.queue = queue;
  if (how == Kind::flush) maker.flush(writer, queue);
  if (how == Kind::barrier) {
    maker.meet(writer, barrier);
    maker.meet(teller, barrier);
  } else if (how == Kind::await) {
    maker.await(teller, writer, 0);
  } else {
    maker.signal(writer, heard);
    maker.wait(teller, heard);
  }
  maker.signal(teller, told);
  maker.wait(reader, told);
  maker.move(reader, {in(1, 0), scratch(1, 0)}, {in(0, 0), in(1, 0)});
  maker.signal(reader, back);
  maker.wait(teller, back);
  maker.move(teller, {in(0, 0)}, {scratch(0, 0)});
  return maker.plan;
}

/// Rank 0 writes into rank 1's memory, and then packets, which tell rank 1 so.
Plan told_by_packets() {
  Maker maker(Collective::all_reduce, 2, 1, 2);
  for (int rank = 0; rank < 2; ++rank) maker.block(rank);
  const int back = maker.counter();
  maker.move(0, {in(0, 0)}, {scratch(1, 0)});
  maker.move(0, {in(0, 0)}, {packet(1, 0)});
  maker.move(1, {packet(1, 0, true)}, {scratch(1, 1)});
  maker.move(1, {in(1, 0), scratch(1, 0)}, {in(0, 0), in(1, 0)});
  maker.signal(1, back);
  maker.wait(0, back);
  maker.move(0, {in(0, 0)}, {scratch(0, 0)});
  return maker.plan;
}

/// A block writes packets for another one of its rank.
Plan packets_of_another_block() {
  Maker maker(Collective::all_reduce, 1, 1, 1, false);
  maker.move(maker.block(0), {in(0, 0)}, {packet(0, 0)});
  maker.move(maker.block(0), {packet(0, 0, true)}, {out(0, 0)});
  return maker.plan;
}

/// Rank 0 writes a cell of rank 1 twice, reads it, and writes what it has read.
Plan overwritten_and_read_back() {
  Maker maker(Collective::all_reduce, 2, 1, 4);
  for (int rank = 0; rank < 2; ++rank) maker.block(rank);
  const int there = maker.counter(), back = maker.counter();
  maker.move(0, {scratch(0, 0)}, {scratch(1, 0)});
  maker.move(0, {in(0, 0)}, {scratch(1, 0)});
  maker.move(0, {scratch(1, 0)}, {scratch(0, 1)});
  maker.move(0, {scratch(0, 1)}, {scratch(1, 1)});
  maker.signal(0, there);
  maker.wait(1, there);
  maker.move(1, {in(1, 0), scratch(1, 1)}, {scratch(1, 2)});
  maker.move(1, {in(1, 0), scratch(1, 0)}, {in(0, 0), scratch(1, 3)});
  maker.move(1, {scratch(1, 2)}, {in(1, 0)});
  maker.signal(1, back);
  maker.wait(0, back);
  maker.move(0, {in(0, 0)}, {scratch(0, 2)});
  return maker.plan;
}

/// Three blocks of a rank meet between two copies, and two of them by semaphores before.
Plan meeting() {
  Maker maker(Collective::all_reduce, 1, 1, 3, false);
  const int first = maker.block(0), second = maker.block(0), third = maker.block(0);
  const int counter = maker.counter(), barrier = maker.barrier(3);
  maker.move(first, {in(0, 0)}, {scratch(0, 0)});
  maker.signal(first, counter);
  maker.wait(second, counter);
  maker.move(second, {scratch(0, 0)}, {scratch(0, 1)});
  for (const int block : {first, second, third}) maker.meet(block, barrier);
  maker.move(third, {scratch(0, 1)}, {out(0, 0)});
  maker.move(first, {scratch(0, 1)}, {scratch(0, 0)});
  return maker.plan;
}

/// Rank 0 writes a cell of rank 1, then rank 1 does, then rank 0 again.
Plan overwritten_by_both() {
  Maker maker(Collective::all_reduce, 2, 1, 3);
  for (int rank = 0; rank < 2; ++rank) maker.block(rank);
  const int there = maker.counter(), back = maker.counter();
  for (int turn = 0; turn < 2; ++turn) {
    maker.move(0, {in(0, 0)}, {scratch(1, 0)});
    maker.signal(0, there);
    maker.wait(1, there);
    maker.move(1, {scratch(1, 0)}, {scratch(1, 1 + turn)});
    if (turn == 0) maker.move(1, {in(1, 0)}, {scratch(1, 0)});
    if (turn == 1) maker.move(1, {in(1, 0), scratch(1, 0)}, {in(0, 0), in(1, 0)});
    maker.signal(1, back);
    maker.wait(0, back);
  }
  maker.move(0, {in(0, 0)}, {scratch(0, 0)});
  return maker.plan;
}

/// Rank 1 hears of rank 0's write by the second signal. The first one is relaxed, and says nothing of it.
Plan relaxed_before() {
  Maker maker(Collective::all_reduce, 2, 1, 2);
  for (int rank = 0; rank < 2; ++rank) maker.block(rank);
  const int first = maker.counter(), second = maker.counter(), back = maker.counter();
  maker.move(0, {in(0, 0)}, {scratch(1, 0)});
  maker.signal(0, first).relaxed = true;
  maker.signal(0, second);
  maker.wait(1, first).relaxed = true;
  maker.move(1, {in(1, 0)}, {scratch(1, 1)});
  maker.wait(1, second);
  maker.move(1, {in(1, 0), scratch(1, 0)}, {in(0, 0), in(1, 0)});
  maker.signal(1, back);
  maker.wait(0, back);
  maker.move(0, {in(0, 0)}, {scratch(0, 0)});
  return maker.plan;
}

/// A plan of MSCCL++ of two ranks.
Plan of_two(const char* collective, int chunks, int scratch, const std::function<Operations(int rank)>& operations,
            const char* link = "memory") {
  const bool gathers = std::string(collective) == "allgather";
  return read_plan(
      foreign_test::pair(collective, gathers ? chunks / 2 : chunks, chunks, scratch, operations(0), operations(1), link)
          .dump());
}

Operations through_ports(int rank, const char* put, const Operations& after) {
  Operations all{on_channel("signal", "port"), on_channel("wait", "port"), kNop,
                 foreign_test::move(put, {own("o", rank)}, {remote(1, rank)}, "port")};
  all.insert(all.end(), after.begin(), after.end());
  all.push_back(on_channel("wait", "port"));
  all.push_back(kNop);
  all.push_back(foreign_test::move("copy", {own("o", 1 - rank)}, {own("s", 0)}));
  return all;
}

std::vector<NamedPlan> mscclpp_plans() {
  const auto one = [](const char* name, const Operations& from, const Operations& to) {
    return foreign_test::move(name, from, to);
  };
  std::vector<NamedPlan> made;
  made.push_back({"put", of_two("allgather", 2, 1, [&](int rank) {
                    Operations all = surrounded({one("put", {own("o", rank)}, {remote(1, rank)})});
                    all.push_back(kNop);
                    all.push_back(one("copy", {own("o", 1 - rank)}, {own("s", 0)}));
                    return all;
                  })});
  made.push_back({"get", of_two("allgather", 2, 0, [&](int rank) {
                    return surrounded({one("get", {remote(1, 1 - rank)}, {own("o", 1 - rank)})});
                  })});
  for (const char* name : {"re", "res"}) {
    made.push_back(
        {name, of_two("allreduce", 2, 1, [&](int rank) {
           const bool sends = std::string(name) == "res";
           Operations targets{own("i", rank)};
           if (sends) targets.push_back(remote(0, rank));
           Operations all{
               one("put", {own("i", 1 - rank)}, {remote(2, 0)}), kNop, on_channel("signal"), on_channel("wait"), kNop,
               one(name, {own("i", rank), own("s", 0)}, targets)};
           if (!sends) all.insert(all.end(), {kNop, one("put", {own("i", rank)}, {remote(0, rank)})});
           return surrounded(all);
         })});
  }
  for (const char* name : {"rre", "rres"}) {
    made.push_back({name, of_two("allreduce", 2, 0, [&](int rank) {
                      const bool sends = std::string(name) == "rres";
                      Operations targets{own("i", rank)};
                      if (sends) targets.push_back(remote(0, rank));
                      Operations all{one(name, {own("i", rank), remote(0, rank)}, targets)};
                      if (!sends) all.insert(all.end(), {kNop, one("put", {own("i", rank)}, {remote(0, rank)})});
                      return surrounded(all);
                    })});
  }
  made.push_back({"respkt, upkt", of_two("allreduce", 2, 2, [&](int rank) {
                    return Operations{one("ppkt", {own("i", 1 - rank)}, {remote(2, 0)}),
                                      one("respkt", {own("i", rank), own("s", 0)}, {own("i", rank), remote(2, 1)}),
                                      one("upkt", {own("s", 1)}, {own("i", 1 - rank)})};
                  })});
  made.push_back({"repkt", of_two("allreduce", 1, 1, [&](int) {
                    return Operations{one("ppkt", {own("i", 0)}, {remote(2, 0)}), kNop,
                                      one("repkt", {own("i", 0), own("s", 0)}, {own("i", 0)})};
                  })});
  made.push_back({"rppkt", of_two("allgather", 2, 2, [&](int rank) {
                    return Operations{one("ppkt", {own("o", rank)}, {remote(2, 0)}),    kNop,
                                      one("rppkt", {own("s", 0)}, {remote(2, 1)}),      kNop,
                                      one("upkt", {own("s", 0)}, {own("o", 1 - rank)}), kNop,
                                      one("upkt", {own("s", 1)}, {own("o", rank)})};
                  })});
  for (const char* name : {"recpkt", "recspkt"}) {
    made.push_back({name, of_two("allreduce", 1, 4, [&](int) {
                      const bool sends = std::string(name) == "recspkt";
                      Operations targets{own("i", 0), own("s", 1)};
                      if (sends) targets.push_back(remote(2, 2));
                      Operations all{one("ppkt", {own("i", 0)}, {remote(2, 0)}),     kNop,
                                     one(name, {own("i", 0), own("s", 0)}, targets), kNop,
                                     one("upkt", {own("s", 1)}, {own("i", 0)}),      kNop};
                      if (sends) all.insert(all.end(), {one("upkt", {own("s", 2)}, {own("i", 0)}), kNop});
                      all.insert(all.end(), {one("cpkt", {own("i", 0)}, {own("s", 3)}), kNop,
                                             one("upkt", {own("s", 3)}, {own("i", 0)})});
                      return all;
                    })});
  }
  made.push_back({"pwsf", of_two(
                              "allgather", 2, 1, [](int rank) { return through_ports(rank, "pwsf", {}); }, "port")});
  made.push_back(
      {"pws", of_two(
                  "allgather", 2, 1, [](int rank) { return through_ports(rank, "pws", {on_channel("flush", "port")}); },
                  "port")});
  made.push_back({"put by a port",
                  of_two(
                      "allgather", 2, 1,
                      [](int rank) {
                        return through_ports(rank, "put", {on_channel("signal", "port"), on_channel("flush", "port")});
                      },
                      "port")});
  made.push_back({"pipeline", read_plan(pipeline(2).dump(), 3)});
  Json sliced = foreign_test::pair("allgather", 1, 2, 0, surrounded({one("put", {own("o", 0)}, {remote(1, 0)})}),
                                   surrounded({one("put", {own("o", 1)}, {remote(1, 1)})}));
  Json& operations = sliced["gpus"][0]["threadblocks"][0]["ops"];
  operations[3]["tbg_info"] = {{"tb_id", 0}, {"tbg_size", 2}};
  Json other = operations[3];
  other["tbg_info"]["tb_id"] = 1;
  operations.insert(operations.begin() + 4, other);
  made.push_back({"slices", read_plan(sliced.dump())});
  return made;
}

}  // namespace

const std::vector<NamedPlan>& plans() {
  static const std::vector<NamedPlan> all = [] {
    std::vector<NamedPlan> made;
    for (Plan& plan : right_plans()) made.push_back({"right plan " + std::to_string(made.size()), std::move(plan)});
    made.push_back({"chain", chain(false)});
    made.push_back({"chain with rrcs", chain(true)});
    made.push_back({"told by a third rank", told_by_a_third_rank()});
    for (const auto& [name, how] : {std::pair("semaphore", Kind::wait), std::pair("await", Kind::await),
                                    std::pair("barrier", Kind::barrier), std::pair("flush", Kind::flush)})
      made.push_back({std::string("told by another block, ") + name, told_by_another_block(how)});
    made.push_back({"told by packets", told_by_packets()});
    made.push_back({"packets of another block", packets_of_another_block()});
    made.push_back({"overwritten by both", overwritten_by_both()});
    made.push_back({"relaxed before", relaxed_before()});
    made.push_back({"overwritten and read back", overwritten_and_read_back()});
    made.push_back({"meeting", meeting()});
    for (NamedPlan& plan : mscclpp_plans()) made.push_back(std::move(plan));
    return made;
  }();
  return all;
}

}  // namespace traces_test
