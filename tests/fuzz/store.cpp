// A worker of a store that says what it likes: pushes and pulls that are nearly right. The server takes what is right
// up to the first request that is not, answers each pull that its clock allows, and then disconnects the worker.
#include "cpu_device/cuda.hpp"
#include "cpu_device/launch.hpp"

#include "param_sync/store/clock/clock.hpp"
#include "param_sync/store/server.cuh"
#include "tests/fuzz/node.hpp"

#include <array>
#include <cstring>
#include <set>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

namespace gpusock::fuzz::of_store {
namespace {

using namespace param_sync;
using store::Request, store::RequestKind, store::Answer, store::AnswerKind;

constexpr int kRanks = 2;                                      // the other one never says anything
constexpr std::array<std::uint64_t, 4> kFloats{4, 700, 0, 6};  // of ranges; the last one has another owner
constexpr std::uint64_t kRow = 2;                              // floats of a row
constexpr std::size_t kOwned = 3;
constexpr std::size_t kOfKeys = 0;   // the range whose rows have keys
constexpr std::uint64_t kCells = 4;  // of their table

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// How floats are sent.
struct Formats {
  std::uint64_t push_words(std::uint64_t floats) const { return codec::words_of(push, floats); }
  std::uint64_t pull_words(std::uint64_t floats) const { return codec::words_of(pull, floats); }
  WireFormat push, pull;
};

/// Words of a push, after the numbers of its rows.
std::uint64_t words_of_push(const Request& request, const Formats& formats) {
  return request.has_rows() ? request.floats * formats.push_words(kRow) : formats.push_words(kFloats[request.range]);
}

/// Numbers of rows, or keys. Most of them ascend.
template <class Name>
std::string names(Input& input, std::uint64_t count) {
  std::string all;
  Name name = 0;
  for (std::uint64_t i = 0; i < count; ++i, name += 1 + static_cast<Name>(input.below(3))) {
    if (input.byte() == 1) name = input.take<Name>();
    all += bytes_of(name);
  }
  return all;
}

/// What the worker sends: most of it follows the protocol.
std::string requests(Input& input, const Formats& formats) {
  std::array<std::uint64_t, kFloats.size()> clocks{}, named{};
  std::string all;
  for (std::size_t left = input.below(12); left != 0; --left) {
    Request request;
    request.range = static_cast<std::uint32_t>(input.below(kOwned));
    constexpr RequestKind kKinds[] = {RequestKind::push,      RequestKind::pull,       RequestKind::push_rows,
                                      RequestKind::pull_rows, RequestKind::push_again, RequestKind::pull_again,
                                      RequestKind::push_keys, RequestKind::pull_keys,  RequestKind::pull_after};
    request.kind = kKinds[input.below(9)];
    if (request.has_keys()) request.range = input.byte() == 1 ? request.range : kOfKeys;
    request.clock = clocks[request.range];
    request.floats = request.is_again()     ? named[request.range]
                     : request.names_rows() ? input.below(kFloats[request.range] / kRow + 2)
                                            : kFloats[request.range];
    if (request.has_rows()) named[request.range] = request.floats;
    if (request.is_push()) ++clocks[request.range];
    const Request right = request;
    if (input.byte() == 1) {
      std::string text = bytes_of(request);
      text[input.below(text.size())] = static_cast<char>(input.byte());
      std::memcpy(&request, text.data(), sizeof request);
    }
    all += bytes_of(request);
    if (right.name_words() == 1) all += names<std::uint32_t>(input, right.floats);
    if (right.has_keys()) all += names<std::uint64_t>(input, right.floats);
    for (int rank = 0; right.kind == RequestKind::pull_after && rank < kRanks; ++rank) {
      all += bytes_of(rank == 0 ? input.below(clocks[right.range] + 2) : input.below(3) / 2);
    }
    if (!right.is_push()) continue;
    const float value = input.take<float>();
    for (std::uint64_t i = 0; i < words_of_push(right, formats); ++i) all += bytes_of(value);
  }
  if (input.byte() == 1) all.resize(input.below(all.size() + 1));
  return all;
}

/// What a server must make of it.
template <class Clock>
struct Expected {
  Expected(const Clock& clock, const std::string& said, const Formats& formats) {
    struct Named {
      std::uint64_t count = 0;
      bool ascends = true;
    };
    std::array<Named, kOwned> named{};
    std::set<std::uint64_t> keys;
    std::size_t at = 0;
    while (said.size() - at >= sizeof(Request)) {
      Request request;
      std::memcpy(&request, said.data() + at, sizeof request);
      at += sizeof request;
      refused = !request.is_known() || request.range >= kOwned || request.clock != received[request.range];
      if (refused) return;
      const std::uint64_t all = kFloats[request.range], rows = all / kRow;
      Named& of = named[request.range];
      refused = request.is_again()     ? request.floats != of.count || (request.is_push() && !of.ascends)
                : request.names_rows() ? request.floats > rows
                                       : request.floats != all;
      refused = refused || (request.has_keys() && request.range != kOfKeys);
      if (refused) return;
      if (request.has_keys()) {
        of = {request.floats};
        for (std::uint64_t i = 0; i < request.floats; ++i, at += sizeof(std::uint64_t)) {
          if (said.size() - at < sizeof(std::uint64_t)) return;  // this key has not come
          const auto key = name_at<std::uint64_t>(said, at);
          keys.insert(key);
          refused = keys.size() > rows || key > codec::KeyCells::kKeyMax ||
                    (i != 0 && key <= name_at<std::uint64_t>(said, at - sizeof key));
          if (refused) return;
        }
      }
      if (request.name_words() == 1) {
        of = {request.floats};
        for (std::uint64_t i = 0; i < request.floats; ++i, at += sizeof(std::uint32_t)) {
          if (said.size() - at < sizeof(std::uint32_t)) return;  // this number has not come
          const auto row = name_at<std::uint32_t>(said, at);
          refused = row >= rows;
          if (refused) return;
          of.ascends = of.ascends && (i == 0 || row > name_at<std::uint32_t>(said, at - sizeof row));
        }
        refused = request.is_push() && !of.ascends;
        if (refused) return;
      }
      const std::uint64_t own = received[request.range], applied = Clock::kInRankOrder ? 0 : own;
      bool after = false;
      if (request.kind == RequestKind::pull_after) {
        if (said.size() - at < kRanks * sizeof own) return;
        after = name_at<std::uint64_t>(said, at) > applied || name_at<std::uint64_t>(said, at + sizeof own) > 0;
        at += kRanks * sizeof own;
      }
      if (!request.is_push()) {
        if (after || !clock.suffices(applied, true, own) || !clock.suffices(0, false, own)) {
          waits = true;
          return;
        }
        const std::uint64_t words = request.has_rows() ? request.floats * formats.pull_words(kRow)
                                                       : formats.pull_words(all);
        answers.push_back({request.range, applied, request.has_rows() ? request.floats * kRow : all, words});
        continue;
      }
      if (own != applied) {
        waits = true;
        return;
      }
      const std::size_t bytes = words_of_push(request, formats) * sizeof(float);
      if (said.size() - at < bytes) return;
      at += bytes;
      ++received[request.range];
    }
  }

  /// A number of a row, or a key.
  template <class Name>
  static Name name_at(const std::string& said, std::size_t at) {
    Name name = 0;
    std::memcpy(&name, said.data() + at, sizeof name);
    return name;
  }

  struct Read {
    std::uint32_t range;
    std::uint64_t own_pushes;  ///< which the weights contain
    std::uint64_t floats, words;
  };
  std::array<std::uint64_t, kFloats.size()> received{};
  std::vector<Read> answers;
  bool refused = false;
  bool waits = false;  ///< for the other rank, for ever
};

/// Serves until the worker is gone, or waits for the other rank.
__global__ void serve(store::Server server, Sgd update) {
  store::ServerLoop loop(server, update);
  loop.begin();
  const store::Phase& phase = server.connections[0].phase;
  while (phase != store::Phase::gone && phase != store::Phase::held && phase != store::Phase::waiting) {
    FUZZ_CHECK(loop.turn());
  }
}

/// A server of one connection, whose worker is rank 0.
struct Owner {
  static constexpr float kGuard = 77;
  static constexpr std::uint32_t kListGuard = 78;

  Owner(const Net& net, Socket socket, const Formats& formats) {
    for (std::size_t i = 0; i < kOwned; ++i) {
      weights[i].assign(kFloats[i] + 1, 0);
      states[i].assign(kFloats[i] + 1, 0);
      pushed[i].assign(kFloats[i] * kRanks + 1, 0);
      read[i].assign(kFloats[i] * kRanks + 1, 0);
      squares[i].assign(kFloats[i] + 1, 0);
      weights[i].back() = pushed[i].back() = read[i].back() = kGuard;
      ranges[i].floats = kFloats[i];
      ranges[i].weights = weights[i].data();
      ranges[i].states = {states[i].data(), kFloats[i]};
      ranges[i].pushed = pushed[i].data();
      ranges[i].read = read[i].data();
      ranges[i].squares = squares[i].data();
      listed[i].assign(kFloats[i] / kRow + 1, kListGuard);
      lists[i * kRanks] = {.rows = listed[i].data(), .rows_max = kFloats[i] / kRow};
    }
    ranges[kOwned].floats = kFloats[kOwned];
    row_of_cell.fill(store::KeyRows::kNone);
    ranges[kOfKeys].keys = {
        {.keys = key_cells.data(), .cells = kCells}, row_of_cell.data(), &keys_used, kFloats[kOfKeys] / kRow};
    connection.socket = socket;
    connection.rank = 0;
    server.net = net;
    server.set = net.open_set(this_thread());
    server.ranks = kRanks;
    server.connection_count = 1;
    server.of_pair = 2;
    server.row_floats = kRow;
    server.push_format = formats.push;
    server.pull_format = formats.pull;
    server.range_count = static_cast<std::uint32_t>(kFloats.size());
    server.connections = &connection;
    server.lists = lists.data();
    server.ranges = ranges.data();
    server.received = received.data();
    server.contained = contained.data();
    server.read_of_others = read_of_others.data();
    server.correction = {true, 0.5f};
    server.lost = lost.data();
    server.losses = &losses;
    server.words_to = words_to.data();
    server.spoken = spoken.data();
    server.stop = &stop;
    server.failed = &failed;
    server.failure = &failure;
    FUZZ_CHECK(server.set >= 0);
  }

  std::array<std::vector<float>, kOwned> weights, states, pushed, read, squares;
  std::array<store::OwnedRange, kFloats.size()> ranges{};
  std::array<std::vector<std::uint32_t>, kOwned> listed;
  std::array<store::RowList, kFloats.size() * kRanks> lists{};
  std::array<std::uint64_t, kCells> key_cells{};
  std::array<std::uint32_t, kCells> row_of_cell{};
  std::uint32_t keys_used = 0;
  std::array<std::uint64_t, kFloats.size() * kRanks> received{}, contained{}, read_of_others{};
  std::array<std::uint32_t, kRanks> lost{};
  std::uint32_t losses = 0;
  std::array<Socket, kRanks> words_to{-1, -1};
  std::array<std::uint64_t, kRanks> spoken{};
  std::uint64_t stop = 0, failed = 0;
  FailureRecord<store::Failure> failure{};
  store::Connection connection;
  store::Server server;
};

/// Takes the answers apart, which must be those that are expected.
template <class Clock>
void check_answers(const std::string& sent, const Expected<Clock>& expected) {
  std::size_t at = 0;
  for (const auto& read : expected.answers) {
    struct {
      Answer answer;
      std::uint64_t seen[kRanks];
    } head;
    FUZZ_CHECK(sent.size() - at >= sizeof head);
    std::memcpy(&head, sent.data() + at, sizeof head);
    const std::uint64_t floats = read.floats;
    FUZZ_CHECK(head.answer.kind == AnswerKind::values && head.answer.range == read.range);
    FUZZ_CHECK(head.answer.floats == floats && head.seen[0] == read.own_pushes && head.seen[1] == 0);
    at += sizeof head + read.words * sizeof(float);
    FUZZ_CHECK(at <= sent.size());
  }
  FUZZ_CHECK(at == sent.size());
}

template <class Clock>
void run(const Clock& clock, const Formats& formats, Input& input, Node& node, Socket socket) {
  const auto wire = node.network.last();
  const std::string said = requests(input, formats);
  const Expected<Clock> expected(clock, said, formats);
  wire->to_node = said;
  wire->ended = true;
  Owner owner(node.net, socket, formats);
  owner.server.clock = store::Clock(clock);
  cpu_device::Stream stream;
  cpu_device::launch(stream, {1, 1, 0}, serve, owner.server, Sgd{-1, 0, 1});
  stream.synchronize();
  const bool gone = owner.connection.phase == store::Phase::gone;
  FUZZ_CHECK((gone || expected.waits) && owner.lost[0] == (gone ? 1 : 0) && owner.lost[1] == 0);
  FUZZ_CHECK(is_recorded(owner.failure) == expected.refused);
  for (std::size_t range = 0; range < kFloats.size(); ++range) {
    FUZZ_CHECK(owner.received[range * kRanks] == expected.received[range]);
    FUZZ_CHECK(owner.received[range * kRanks + 1] == 0);
  }
  for (std::size_t range = 0; range < kOwned; ++range) {
    FUZZ_CHECK(owner.weights[range].back() == Owner::kGuard && owner.pushed[range].back() == Owner::kGuard);
    FUZZ_CHECK(owner.read[range].back() == Owner::kGuard && owner.listed[range].back() == Owner::kListGuard);
  }
  node.turn(8);
  check_answers(wire->from_node, expected);
  node.net.close_set(this_thread(), owner.server.set);
}

}  // namespace

FUZZ_TARGET(store) {
  Node node;
  node.start();
  Endpoint to = WireStream::here();
  to.link = LinkKind::tcp;
  const Socket socket = node.net.connect(this_thread(), to, Deadline::now());
  FUZZ_CHECK(socket >= 0);
  const AnyClock clocks[] = {Bsp(), Ssp{1}, Async()};
  const AnyClock& chosen = clocks[input.below(3)];
  const std::uint8_t of_floats = input.byte();  // 0: float32 in both directions
  const Formats formats{static_cast<WireFormat>(of_floats % 4), static_cast<WireFormat>(of_floats / 4 % 4)};
  std::visit([&](const auto& clock) { run(clock, formats, input, node, socket); }, chosen);
}

}  // namespace gpusock::fuzz::of_store
