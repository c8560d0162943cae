// The kernel that executes schedules (param_sync/executor), as it is: lanes of one thread, and ops without
// sockets. Whoever reads floats that another lane writes without an order between them races.
#include "cases.hpp"
#include "wires.hpp"
#include "world.hpp"

#include "param_sync/executor/policies.cuh"
#include "param_sync/executor/resident.cuh"
#include "param_sync/rows.cuh"
#include "param_sync/update/sgd.hpp"

#include <cerrno>
#include <string>
#include <vector>

namespace gpusock::model {
namespace {

namespace ex = param_sync::executor;
using Policies = ex::Policies<param_sync::Sgd>;

const Policies policies{{1, 0, 1}, {}};

/// A rank with two lanes of one op each, which applies the optimizer to one chunk: the sum 2 makes 3 of the weight 5.
struct TwoLanes {
  TwoLanes(int second_chunk, bool follows) {
    const auto kind = param_sync::schedule::Kind::apply;
    ops[0] = {.kind = kind, .chunk = 0, .count = 1};
    ops[1] = {.kind = kind, .chunk = second_chunk, .count = 1, .after_begin = 0, .after_end = follows ? 1 : 0};
    run.ops = ops;
    run.after = after;
    run.lanes = lanes;
    run.lane_count = 2;
    run.data = data;
    run.cut = {.floats = 2, .unit_floats = 1, .chunks = 2};
    run.apply = {{velocity, 2}, weights};
    run.number = 1;
    run.timeout_ns = 1'000'000;
    run.progress = progress;
    run.lanes_ended = &lanes_ended;
    run.failed = &failed;
    run.failure = &failure;
    run.completed = &completed;
  }
  void run_lane(unsigned lane) { run_block(lane, 2, ex::run_lanes<Policies>, run, policies); }
  std::string await_result(std::uint64_t run_number = 1) {
    while (!ex::is_completed(completed, run_number)) give_way();
    return std::to_string(static_cast<int>(data[0])) + " " + std::to_string(static_cast<int>(data[1]));
  }

  ex::LaneOp ops[2] = {};
  const ex::Reached after[1] = {{0, 1}};
  const ex::LaneOps lanes[2] = {{0, 1}, {1, 2}};
  float data[2] = {2, 2}, weights[2] = {5, 5}, velocity[2] = {};
  std::uint64_t progress[2] = {}, lanes_ended = 0, failed = 0, completed = 0;
  param_sync::FailureRecord<ex::ExecutionFailure> failure;
  ex::Run run;
};

Case two_lanes(const std::string& name, int second_chunk, bool follows, const std::string& result) {
  return {"executor." + name,
          [second_chunk, follows](Run& run) {
            auto& rank = run.make<TwoLanes>(second_chunk, follows);
            auto& got = run.make<std::string>();
            for (unsigned lane = 0; lane < 2; ++lane) run.thread([&rank, lane] { rank.run_lane(lane); });
            run.thread([&] { got = rank.await_result(); });
            run.at_end([&] { return got; });
          },
          {result},
          20'000};
}

/// A run after another: it ends by its own lanes.
Case second_run() {
  return {"executor.a_second_run",
          [](Run& run) {
            auto& rank = run.make<TwoLanes>(0, false);
            auto& got = run.make<std::string>();
            rank.run.lane_count = 1;
            run.thread([&] {
              for (rank.run.number = 1; rank.run.number <= 2; ++rank.run.number) rank.run_lane(0);
            });
            run.thread([&] { got = rank.await_result(2); });
            run.at_end([&] { return got; });
          },
          {"0 2"},
          20'000};
}

/// Two lanes fail at the same time: one record is written, whole, and a lane that waits for another ends.
Case two_lanes_fail() {
  return {"executor.two_lanes_fail",
          [](Run& run) {
            auto& rank = run.make<TwoLanes>(0, true);
            for (const int error : {EPIPE, ECONNRESET}) {
              run.thread([&rank, error] {
                ex::fail(rank.run, {.kind = ex::ExecutionFailureKind::send, .channel = error, .error = error});
              });
            }
            run.thread([&] { rank.run_lane(1); });
            auto& got = run.make<ex::ExecutionFailure>();
            run.thread([&] {
              while (!param_sync::is_recorded(rank.failure)) give_way();
              got = rank.failure.what;
            });
            run.at_end([&] { return std::to_string(got.channel) + " " + std::to_string(got.error); });
          },
          {std::to_string(EPIPE) + " " + std::to_string(EPIPE),
           std::to_string(ECONNRESET) + " " + std::to_string(ECONNRESET)},
          20'000};
}

/// A step of a training: two blocks compute gradients, two resident lanes make weights of them, and the next forward
/// kernel reads these. Then gradients are written again.
struct Training {
  Training() : lanes(1, false) {
    lanes.run.apply.weights_apart = true;
    lanes.run.keeps_sockets = true;
    lanes.run.stop = &stop;
    exchange.run = lanes.run;
    exchange.ready_per_step = 2;
    exchange.words = &words;
    exchange.positions = positions;
    times.first_ready_ns = 1'000'000;  // now
  }
  void compute(int float_index) {
    lanes.data[float_index] = 3;
    ex::hand_over(words);
  }
  void run_lane(unsigned lane) {
    run_block(lane, 2, ex::run_exchanges<Policies>, &exchange, &policies, 1, std::uint64_t{1}, &times);
  }
  void step_again() {
    while (!ex::has_version(words, 1)) give_way();
    result = std::to_string(static_cast<int>(lanes.weights[0])) + " " +
             std::to_string(static_cast<int>(lanes.weights[1])) + ", stands at " + std::to_string(positions[0]) + " " +
             std::to_string(positions[1]) + ", " + std::to_string(times.communicating_ns) + " ns";
    lanes.data[0] = lanes.data[1] = 4;
  }

  TwoLanes lanes;
  ex::Exchange exchange;
  ex::ExchangeWords words = {};
  ex::ExchangeTimes times = {};
  std::uint64_t positions[2] = {}, stop = 0;
  std::string result;
};

Case training_step() {
  return {
      "executor.a_training_step",
      [](Run& run) {
        auto& training = run.make<Training>();
        for (int block = 0; block < 2; ++block) run.thread([&training, block] { training.compute(block); });
        for (unsigned lane = 0; lane < 2; ++lane) run.thread([&training, lane] { training.run_lane(lane); });
        run.thread([&] { training.step_again(); });
        run.at_end([&] { return training.result + (training.times.ended_ns != 0 ? "" : ", and nobody says when"); });
      },
      {"2 2, stands at 1 1, 0 ns"},  // 5 - 3; time stands still
      20'000};
}

void write_part(ex::InPlaceReservations reservations, std::uint64_t step, int part, ex::ExchangeWords* words) {
  const auto from = static_cast<std::uint64_t>(part);
  const ex::Destination to(reservations, step, {from, from + 1});
  to[from] = static_cast<float>(3 + part + 2 * static_cast<int>(step));
  ex::hand_over(*words);
}

/// A rank with one lane, which sends its own two floats. Two blocks compute them.
struct OwnSend {
  OwnSend() : lanes(0, false) {
    lanes.ops[0] = {.kind = param_sync::schedule::Kind::send, .chunk = 0, .count = 2, .out = 0};
    exchange.run = lanes.run;
    exchange.run.net = wires.net();
    exchange.run.lane_count = 1;
    exchange.run.sockets = sockets;
    exchange.run.socket_count = 1;
    exchange.run.reservations = &reservation;
    exchange.run.reservation_of_op = &reservation_of_op;
    exchange.run.keeps_sockets = true;
    exchange.run.stop = &stop;
    exchange.reservations = 1;
    exchange.ready_per_step = 2;
    exchange.words = &words;
    exchange.positions = &position;
  }
  void compute(int part, std::uint64_t step = 0) {
    run_block(0, 1, write_part, ex::InPlaceReservations{&reservation, 1, lanes.data}, step, part, &words);
  }
  void run_lane(std::uint64_t steps) {
    run_block(0, 1, ex::run_exchanges<Policies>, &exchange, &policies, 1, steps, &times);
  }
  std::string receive() {
    struct {
      ex::MessageHeader header;
      float floats[2];
    } message{};
    require(wires.net().recv(kMe, wires.handles[1], &message, sizeof message, kWaitAll) == sizeof message,
            "a message is received");
    require(message.header.floats == 2, "its header is there");
    return std::to_string(static_cast<int>(message.floats[0])) + " " +
           std::to_string(static_cast<int>(message.floats[1]));
  }
  std::string told() const { return got + (words.in_place_bytes != 0 ? ", in place" : ", copied"); }

  Wires wires;
  TwoLanes lanes;
  const Socket sockets[1] = {wires.handles[0]};
  ex::InPlaceReservation reservation{
      .floats = {0, 2}, .decision = 0, .first = nullptr, .first_floats = 0, .rest = nullptr};
  const int reservation_of_op = 0;
  ex::Exchange exchange;
  ex::ExchangeWords words = {};
  ex::ExchangeTimes times = {};
  std::uint64_t position = 0, stop = 0;
  std::string got;
};

/// Either the lane is the first, or a block: all blocks find the same.
Case own_send() {
  return {"executor.gradients_are_written_where_they_are_sent_from",
          [](Run& run) {
            auto& rank = run.make<OwnSend>();
            for (int part = 0; part < 2; ++part) run.thread([&rank, part] { rank.compute(part); });
            run.thread([&] { rank.run_lane(1); });
            run.thread([&] { rank.got = rank.receive(); });
            run.at_end([&] { return rank.told(); });
          },
          {"3 4, copied", "3 4, in place"},
          20'000};
}

/// The host ends a training while lanes wait for gradients: nobody calls it a failure.
Case end_of_a_training() {
  return {"executor.the_host_ends_a_training",
          [](Run& run) {
            auto& training = run.make<Training>();
            run.thread([&] { training.run_lane(0); });
            run.thread([&] { ex::SystemWord(training.stop).store(1, cuda::memory_order_relaxed); });
            run.at_end([&] { return std::to_string(training.lanes.failed); });
          },
          {"0"}};
}

/// Lanes of two exchanges let other ranks send, by one counter of credits, of which there is one: at most one lane has
/// it at a time, and both get their turn. It is free once the first exchange is seen to wait for it.
struct Credits {
  Credits() {
    for (int i = 0; i < 2; ++i) {
      exchanges[i].run = lanes.run;
      exchanges[i].gives_way = i != 0;
      exchanges[i].credits = 1;
      exchanges[i].credits_taken = &taken;
      exchanges[i].words = &words[i];
      exchanges[i].positions = positions;
    }
  }
  void grant(int exchange) {
    const auto none = param_sync::schedule::kNobody;
    const ex::LaneOp signal{.kind = param_sync::schedule::Kind::send, .in = none, .out = 0},
        addition{.kind = param_sync::schedule::Kind::recv_reduce, .count = 1, .in = 0, .out = none};
    ex::StepOfLane<Policies::Admission> lane({exchanges, exchange, exchanges[exchange], 0}, 0, counts[exchange]);
    if (!lane.before_op(signal)) return;
    const std::uint64_t others = ex::DeviceWord(granted).fetch_add(1, cuda::memory_order_relaxed);
    if (others != 0) at_once = true;
    ex::DeviceWord(granted).fetch_add(~std::uint64_t{0}, cuda::memory_order_relaxed);
    lane.after_op(addition, 0, 0, 0);
    ex::DeviceWord(turns).fetch_add(1, cuda::memory_order_relaxed);
  }

  void free_when_wanted() {
    while (ex::DeviceWord(words[0].credit_wanted).load(cuda::memory_order_relaxed) == 0) give_way();
    ex::DeviceWord(taken).fetch_add(~std::uint64_t{0}, cuda::memory_order_relaxed);
  }

  TwoLanes lanes{0, false};
  ex::Exchange exchanges[2];
  ex::ExchangeWords words[2] = {};
  ex::LaneCounts counts[3];
  std::uint64_t positions[3] = {}, taken = 1, granted = 0, turns = 0;
  bool at_once = false;
};

Case credits() {
  return {"executor.credits",
          [](Run& run) {
            auto& credits = run.make<Credits>();
            for (const int exchange : {0, 1}) run.thread([&credits, exchange] { credits.grant(exchange); });
            run.thread([&credits] { credits.free_when_wanted(); });
            run.at_end([&] {
              return std::string(credits.at_once ? "two at once, " : "") + std::to_string(credits.turns) + " turns, " +
                     std::to_string(credits.taken) + " taken";
            });
          },
          {"2 turns, 0 taken"},
          20'000};
}

/// Blocks add to rows, one of which they share.
struct SharedRows {
  void add(std::uint64_t key) {
    const float values[] = {1, 2};
    if (rows.add(gpusock::this_block(), key, values) != 0) ++full;
  }
  /// The sums of a key's row.
  std::string row(std::uint64_t key) const {
    std::string text;
    for (int cell = 0; cell < 2; ++cell) {
      const auto sums = std::bit_cast<param_sync::FloatPair>(pairs[cell]);
      if (keys[cell] != key + 1) continue;
      text += std::to_string(static_cast<int>(sums.first)) + " " + std::to_string(static_cast<int>(sums.second)) + " ";
    }
    return text;
  }

  std::uint64_t keys[2] = {}, pairs[2] = {}, refused = 0;
  param_sync::Rows rows{keys, pairs, &refused, 2, 2};
  int full = 0;
};

Case shared_rows() {
  return {"executor.rows_that_blocks_share",
          [](Run& run) {
            auto& table = run.make<SharedRows>();
            run.thread([&] { table.add(1); });
            run.thread([&] { table.add(2), table.add(1); });
            run.at_end([&] { return table.row(1) + table.row(2) + std::to_string(table.full); });
          },
          {"2 4 1 2 0"},
          20'000};
}

/// Three blocks bring rows into a table that has room for two: one of them does not find any.
Case full_table() {
  return {"executor.a_table_without_room",
          [](Run& run) {
            auto& table = run.make<SharedRows>();
            for (const std::uint64_t key : {1, 2, 3}) {
              run.thread([&table, key] {
                const float values[] = {1, 2};
                table.rows.add(gpusock::this_block(), key, values);
              });
            }
            run.at_end([&] {
              const std::string all = table.row(1) + table.row(2) + table.row(3);
              return all + std::to_string(table.refused) + " refused";
            });
          },
          {"1 2 1 2 1 refused"},
          20'000};
}

}  // namespace

std::vector<Case> executor_cases() {
  return {credits(),
          shared_rows(),
          full_table(),
          training_step(),
          own_send(),
          end_of_a_training(),
          two_lanes("a_lane_follows_another", 0, true, "0 2"),  // 5 - 2, and 3 - 3
          two_lanes("lanes_side_by_side", 1, false, "3 3"),
          second_run(),
          two_lanes_fail()};
}

}  // namespace gpusock::model
