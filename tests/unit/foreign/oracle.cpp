#include "oracle.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

namespace foreign_test {
namespace {

using namespace param_sync::foreign;

/// A sum of parts: four bits say how often it has a part, the cell of a rank's input. 0: nothing was written.
using Sum = std::uint64_t;
constexpr int kCells = 4;  // of a buffer, at most
constexpr Sum kWrong = Sum{1} << 63;

Sum part(int rank, int cell) { return Sum{1} << (4 * (3 * rank + cell)); }  // at most 3 ranks with 3 cells each

struct Position {
  std::size_t step = 0;
  int unit = 0;
  int phase = 0;  // of the unit: what it has received, read, written
  Sum sum = 0;
  auto operator<=>(const Position&) const = default;
};

struct Sent {
  Sum sum = 0;
  int unit = 0, count = 0;
  auto operator<=>(const Sent&) const = default;
};

struct State {
  std::vector<Position> blocks;
  std::vector<std::vector<Sum>> memory;  // by rank: input or both, output, scratch, packets
  std::vector<std::set<int>> flags;      // of packets, by rank
  std::vector<std::vector<Sent>> channels;
  std::vector<int> counters;
  auto operator<=>(const State&) const = default;
};

class Search {
 public:
  Search(const Plan& plan, std::size_t states_max) : plan_(plan), states_max_(states_max) {}

  std::optional<Outcome> run() {
    State first;
    first.blocks.resize(plan_.blocks.size());
    first.channels.resize(plan_.connections.size());
    first.flags.resize(static_cast<std::size_t>(plan_.ranks));
    for (const Counter& counter : plan_.counters) first.counters.push_back(counter.initial);
    const Sizes sizes = sizes_of(plan_.collective, plan_.ranks, plan_.data_chunks);
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      first.memory.emplace_back(4 * kCells);
      for (int i = 0; i < sizes.input; ++i) cell(first, {rank, Buffer::input, i}, 0) = part(rank, i);
    }
    std::vector<State> open{first};
    seen_.insert(first);
    while (!open.empty()) {
      const State state = open.back();
      open.pop_back();
      bool goes_on = false;
      bool has_ended = true;
      for (std::size_t i = 0; i < plan_.blocks.size(); ++i) {
        if (state.blocks[i].step == plan_.blocks[i].steps.size()) continue;
        has_ended = false;
        State next = state;
        if (!advance(next, i)) continue;
        goes_on = true;
        if (seen_.insert(next).second) open.push_back(std::move(next));
      }
      if (seen_.size() > states_max_) return std::nullopt;
      if (has_ended) outcome_.may_fail |= !is_right_at_end(state);
      if (!has_ended && !goes_on) outcome_.may_hang = true;
      if (outcome_.may_fail && outcome_.may_hang) break;
    }
    outcome_.states = seen_.size();
    return outcome_;
  }

 private:
  Sum& cell(State& state, const Place& place, int unit) const {
    const bool in_place = plan_.runs_in_place;
    int first = 0;
    if (place.buffer == Buffer::input)
      first = in_place && plan_.collective == Collective::all_gather ? offset_in_place(plan_, place.rank) : 0;
    if (place.buffer == Buffer::output) first = in_place ? 0 : kCells;
    if (place.buffer == Buffer::scratch) first = 2 * kCells;
    if (place.buffer == Buffer::packets) first = 3 * kCells;
    return state.memory[static_cast<std::size_t>(place.rank)][static_cast<std::size_t>(first + place.cell + unit)];
  }

  /// The next thing that the block does. False if it has to wait. A message that meets a step of another length may be
  /// anything: it adds a part that no result has.
  bool advance(State& state, std::size_t number) const {
    Position& at = state.blocks[number];
    const Step& step = plan_.blocks[number].steps[at.step];
    const auto counter = static_cast<std::size_t>(step.counter);
    if (step.kind == Kind::await) {
      if (state.blocks[static_cast<std::size_t>(step.awaited_block)].step <=
          static_cast<std::size_t>(step.awaited_step))
        return false;
    } else if (step.kind == Kind::signal) {
      ++state.counters[counter];
    } else if (step.kind == Kind::wait) {
      if (state.counters[counter]-- == 0) return false;
    } else if (step.kind == Kind::move && at.unit < step.count) {
      if (!move(state, at, step)) return false;
      if (at.unit < step.count) return true;
    }
    at = {at.step + 1, 0, 0, 0};
    return true;
  }

  bool move(State& state, Position& at, const Step& step) const {
    const auto reads = static_cast<int>(step.from.size());
    const auto writes = static_cast<int>(step.to.size());
    if (at.phase == 0) {
      if (step.receives != kNone) {
        auto& channel = state.channels[static_cast<std::size_t>(step.receives)];
        if (channel.empty()) return false;
        at.sum = channel.front().sum;
        if (channel.front().unit != at.unit || channel.front().count != step.count) at.sum = kWrong;
        channel.erase(channel.begin());
      }
    } else if (at.phase <= reads) {
      const Place& place = step.from[static_cast<std::size_t>(at.phase - 1)];
      const bool waits = place.buffer == Buffer::packets && place.waits_for_packets;
      if (waits && !state.flags[static_cast<std::size_t>(place.rank)].contains(place.cell + at.unit)) return false;
      const Sum term = cell(state, place, at.unit);
      const bool is_first = at.phase == 1 && step.receives == kNone;
      if (is_first) {
        at.sum = term;
      } else {
        at.sum = term == 0 || at.sum == 0 ? 0 : at.sum + term;
      }
    } else if (at.phase <= reads + writes) {
      const Place& place = step.to[static_cast<std::size_t>(at.phase - reads - 1)];
      cell(state, place, at.unit) = at.sum;
      if (place.buffer == Buffer::packets)
        state.flags[static_cast<std::size_t>(place.rank)].insert(place.cell + at.unit);
    } else {
      auto& channel = state.channels[static_cast<std::size_t>(step.sends)];
      if (channel.size() >= static_cast<std::size_t>(plan_.slots)) return false;
      channel.push_back({at.sum, at.unit, step.count});
    }
    const int phases = 1 + reads + writes + (step.sends != kNone ? 1 : 0);
    if (++at.phase < phases) return true;
    at = {at.step, at.unit + 1, 0, 0};
    return true;
  }

  bool is_right_at_end(const State& state) const {
    const auto is_empty = [](const auto& channel) { return channel.empty(); };
    if (!std::all_of(state.channels.begin(), state.channels.end(), is_empty)) return false;
    for (std::size_t i = 0; i < plan_.counters.size(); ++i) {
      if (state.counters[i] != plan_.counters[i].initial) return false;
    }
    State end = state;
    const Sizes sizes = sizes_of(plan_.collective, plan_.ranks, plan_.data_chunks);
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      for (int i = 0; i < sizes.output; ++i) {
        Sum should = 0;
        if (plan_.collective == Collective::all_reduce) {
          for (int other = 0; other < plan_.ranks; ++other) should += part(other, i);
        } else {
          should = part(i / sizes.input, i % sizes.input);  // an all-gather
        }
        if (cell(end, {rank, Buffer::output, i}, 0) != should) return false;
      }
    }
    return true;
  }

  const Plan& plan_;
  std::size_t states_max_;
  std::set<State> seen_;
  Outcome outcome_;
};

}  // namespace

std::optional<Outcome> all_orders(const Plan& plan, std::size_t states_max) { return Search(plan, states_max).run(); }

}  // namespace foreign_test
