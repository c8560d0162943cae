// What a call costs across the bus, where the rings are in host memory: the budgets that docs/machine-code.md names.
#include "cases.hpp"
#include "pair.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace gpusock::model {
namespace {

/// A pair of streams whose callers are kernels, as their looks are; and what they read and write across the bus.
class Counted {
 public:
  /// Where the pair's rings and words are.
  enum class Rings { host, host_and_bar, one_gpu, two_gpus };
  Counted(bool records, Rings rings) : pair_(1024), rings_(rings) {
    // As a kernel, which has no doorbell to ring.
    kernel_.self = this;
    kernel_.relax = [](void* self, std::uint64_t, std::uint64_t, bool) { static_cast<Counted*>(self)->at_turn(); };
    pair_.side().hooks = &kernel_;
    pair_.needs_proxy(records);
    pair_.side().status_turns = kStatusTurns;
    if (rings == Rings::one_gpu || rings == Rings::two_gpus) pair_.words_are_on_device();
    if (rings == Rings::host) pair_.lies_across_bus(traffic_);
    if (rings == Rings::one_gpu) pair_.copies_lie_across_bus(traffic_);
  }
  ~Counted() { counted_traffic = nullptr; }

  Pair& pair() { return pair_; }
  /// The receiver's ring is in its GPU's memory, where a NIC writes.
  void is_written_by_nic(std::uint64_t bias) { pair_.is_written_by_nic(bias_ = bias, traffic_); }
  /// Of two GPUs, or rings in host memory and words in device memory: counts what this side's GPU does not have in its
  /// memory.
  void count_as(bool sender) {
    traffic_ = {};
    rings_ == Rings::two_gpus ? pair_.lies_elsewhere(traffic_, sender)
                              : pair_.lies_across_bus_but_polled(traffic_, sender);
  }
  /// Loads and stores that a call makes across the bus.
  template <class Call>
  std::string cost(Call call) {
    traffic_.clear();
    counted_traffic = &traffic_;
    call();
    counted_traffic = nullptr;
    return std::to_string(traffic_.loads) + " loads, " + std::to_string(traffic_.stores) + " stores";
  }
  /// The most that one of `turns` turns of a wait loads.
  int most_loads_of_a_turn(std::uint64_t turns) {
    turns_left_ = turns, most_ = 0, first_ = true;
    cost([&] {
      char byte = 0;
      pair_.net().recv(kMe, pair_.receiver(), &byte, 1);
    });
    return most_;
  }

 private:
  static constexpr std::uint32_t kStatusTurns = 4;

  void at_turn() {
    if (!std::exchange(first_, false)) most_ = std::max(most_, traffic_.loads);
    traffic_.clear();
    if (--turns_left_ == 0) pair_.arrive(std::max(pair_.load_committed(), bias_) + 1);
  }

  Pair pair_;
  Rings rings_;
  detail::Hooks kernel_ = hooks();
  Traffic traffic_;
  std::uint64_t turns_left_ = 0;
  std::uint64_t bias_ = 0;
  int most_ = 0;
  bool first_ = true;
};

Case cost(const std::string& name, bool records, void (*steps)(Counted&), Counted::Rings rings = Counted::Rings::host) {
  return {"cost." + name,
          [records, steps, rings](Run& run) {
            auto& counted = run.make<Counted>(records, rings);
            run.thread([&counted, steps] { steps(counted); });
            run.at_end([] { return std::string(); });
          },
          {""}};
}

void expect(const std::string& found, const std::string& budget, const std::string& what) {
  require(found == budget, what + ": " + found + ", and the budget is " + budget);
}

/// The bytes, and the position.
void of_sending(Counted& counted) {
  const Net net = counted.pair().net();
  const Socket socket = counted.pair().sender();
  const char bytes[64] = {};
  const auto send = [&] { require(net.send(kMe, socket, bytes, sizeof bytes) == 64, "64 bytes are sent"); };
  expect(counted.cost(send), "0 loads, 2 stores", "send with room");
  expect(counted.cost([&] {
    require(net.reserve(kMe, socket, 64, Deadline::now()).size == 64, "room is reserved");
    require(net.commit(kMe, socket, 64) == 0, "and committed");
  }),
         "0 loads, 1 stores", "reserve and commit");
}

/// A record's header is a store more.
void of_sending_a_record(Counted& counted) {
  const char bytes[56] = {};
  expect(counted.cost([&] {
    require(counted.pair().net().send(kMe, counted.pair().sender(), bytes, sizeof bytes) == 56, "a record is sent");
  }),
         "0 loads, 3 stores", "send of a record with room");
}

/// The position and the bytes; the position that gives them back.
void of_receiving(Counted& counted) {
  const Net net = counted.pair().net();
  const Socket socket = counted.pair().receiver();
  char bytes[64] = {};
  counted.pair().arrive(128);
  const auto receive = [&] { require(net.recv(kMe, socket, bytes, sizeof bytes) == 64, "64 bytes are received"); };
  expect(counted.cost(receive), "2 loads, 1 stores", "recv of bytes that have arrived");
  expect(counted.cost(receive), "1 loads, 1 stores", "recv of bytes that are known to have arrived");
}

void of_an_empty_turn(Counted& counted) {
  for (const std::uint64_t turns : {2, 9}) {
    require(counted.most_loads_of_a_turn(turns) == 1, "an empty turn of a wait reads one word");
  }
}

/// The status and a position for each socket.
void of_polling(Counted& counted) {
  counted.pair().arrive(1);
  PollEntry entry{counted.pair().receiver(), kPollIn, 0};
  expect(counted.cost([&] { require(counted.pair().net().poll(kMe, &entry, 1) == 1, "poll sees a byte"); }),
         "2 loads, 0 stores", "poll of a socket with data");
}

/// p2p between kernels of one GPU: nothing is read across the bus but the status, where it is looked at; and the
/// position's copy is stored, for which nobody waits.
void of_one_gpu(Counted& counted) {
  const Net net = counted.pair().net();
  const char bytes[64] = {};
  char received[64] = {};
  const auto send = [&] {
    require(net.send(kMe, counted.pair().sender(), bytes, sizeof bytes) == 64, "64 bytes are sent");
  };
  const auto receive = [&] {
    require(net.recv(kMe, counted.pair().receiver(), received, sizeof received) == 64, "64 bytes are received");
  };
  for (int i = 0; i < 3; ++i) {
    expect(counted.cost(send), "0 loads, 1 stores", "send with room");
    expect(counted.cost(receive), "0 loads, 1 stores", "recv of bytes that have arrived");
  }
  require(counted.pair().load_host_committed() == 3 * 64, "the proxy can read how far the sender is");
  require(counted.most_loads_of_a_turn(3) == 0, "a turn of a wait reads its own GPU's memory");
  require(counted.most_loads_of_a_turn(9) == 1, "and the status seldom");
  counted.pair().arrive(counted.pair().load_committed() + 1);
  PollEntry entry{counted.pair().receiver(), kPollIn, 0};
  expect(counted.cost([&] { require(net.poll(kMe, &entry, 1) == 1, "poll sees a byte"); }), "1 loads, 0 stores",
         "poll of a socket with data");
}

/// Rings in host memory, and the proxy's words where kernels poll them: only the bytes are read across the bus.
void of_bar_writes(Counted& counted) {
  const Net net = counted.pair().net();
  const char bytes[64] = {};
  char received[64] = {};
  counted.count_as(true);
  const auto send = [&] {
    require(net.send(kMe, counted.pair().sender(), bytes, sizeof bytes) == 64, "64 bytes are sent");
  };
  for (int i = 0; i < 16; ++i) expect(counted.cost(send), "0 loads, 2 stores", "send with room");
  counted.pair().take(1024);
  expect(counted.cost(send), "0 loads, 2 stores", "send that looks for room");
  counted.count_as(false);
  const auto receive = [&] {
    require(net.recv(kMe, counted.pair().receiver(), received, sizeof received) == 64, "64 bytes are received");
  };
  counted.pair().arrive(1024);
  for (int i = 0; i < 16; ++i) expect(counted.cost(receive), "1 loads, 1 stores", "recv of bytes that have arrived");
  require(counted.most_loads_of_a_turn(9) == 0, "a turn of a wait reads its own GPU's memory, the status too");
  PollEntry entry{counted.pair().receiver(), kPollIn, 0};
  counted.pair().arrive(counted.pair().load_committed() + 1);
  expect(counted.cost([&] { require(net.poll(kMe, &entry, 1) == 1, "poll sees a byte"); }), "0 loads, 0 stores",
         "poll of a socket with data");
}

/// p2p between kernels of two GPUs: nothing is read over the link between them. Bytes and position are written there,
/// and the position's copy to host memory.
void of_two_gpus(Counted& counted) {
  const Net net = counted.pair().net();
  const char bytes[64] = {};
  char received[64] = {};
  for (int i = 0; i < 3; ++i) {
    counted.count_as(true);
    expect(counted.cost([&] {
      require(net.send(kMe, counted.pair().sender(), bytes, sizeof bytes) == 64, "64 bytes are sent");
    }),
           "0 loads, 3 stores", "send with room");
    counted.count_as(false);
    expect(counted.cost([&] {
      require(net.recv(kMe, counted.pair().receiver(), received, sizeof received) == 64, "64 bytes are received");
    }),
           "0 loads, 2 stores", "recv of bytes that have arrived");
  }
  require(counted.most_loads_of_a_turn(3) == 0, "a turn of a wait reads its own GPU's memory");
}

/// A ring of bytes later the sender looks for room: in its own memory.
void of_two_gpus_full(Counted& counted) {
  const Net net = counted.pair().net();
  const std::string bytes(1024, 'x');
  std::string received(1024, ' ');
  require(net.send(kMe, counted.pair().sender(), bytes.data(), bytes.size()) == 1024, "a ring is filled");
  require(net.recv(kMe, counted.pair().receiver(), received.data(), received.size()) == 1024, "and emptied");
  counted.count_as(true);
  expect(counted.cost(
             [&] { require(net.send(kMe, counted.pair().sender(), bytes.data(), 64) == 64, "64 bytes are sent"); }),
         "1 loads, 3 stores", "send that looks for room: the status alone crosses the bus");
}

/// Only the position that gives the bytes back crosses the bus, and nobody waits for it.
void of_a_nic_that_writes_for_kernels(Counted& counted) {
  constexpr std::uint64_t kBias = 12345;
  counted.is_written_by_nic(kBias);
  char bytes[64] = {};
  require(counted.most_loads_of_a_turn(3) == 0, "a turn of a wait reads its own GPU's memory");
  counted.pair().arrive(kBias + 65);
  expect(counted.cost([&] {
    require(counted.pair().net().recv(kMe, counted.pair().receiver(), bytes, sizeof bytes) == 64, "64 bytes come");
  }),
         "0 loads, 1 stores", "recv of bytes that have arrived");
}

}  // namespace

std::vector<Case> cost_cases() {
  return {cost("of_sending", false, of_sending),
          cost("of_sending_a_record", true, of_sending_a_record),
          cost("of_receiving", false, of_receiving),
          cost("of_an_empty_turn", false, of_an_empty_turn),
          cost("of_polling", false, of_polling),
          cost("of_bar_writes", false, of_bar_writes, Counted::Rings::host_and_bar),
          cost("of_one_gpu", false, of_one_gpu, Counted::Rings::one_gpu),
          cost("of_a_nic_that_writes_for_kernels", false, of_a_nic_that_writes_for_kernels, Counted::Rings::two_gpus),
          cost("of_two_gpus", false, of_two_gpus, Counted::Rings::two_gpus),
          cost("of_two_gpus_full", false, of_two_gpus_full, Counted::Rings::two_gpus)};
}

}  // namespace gpusock::model
