#include "param_sync/schedule/builder.hpp"

#include <algorithm>
#include <utility>

namespace param_sync::schedule {
namespace {

int known_of(const std::vector<int>& known, int lane) {
  return lane < static_cast<int>(known.size()) ? known[static_cast<std::size_t>(lane)] : 0;
}

}  // namespace

Builder::Builder(const std::string& scheme, int ranks, int chunks, Result result) {
  schedule_.scheme = scheme;
  schedule_.chunks = chunks;
  schedule_.result = result;
  schedule_.workers = ranks;
  schedule_.ranks.resize(static_cast<std::size_t>(ranks));
  states_.resize(static_cast<std::size_t>(ranks));
  for (RankState& state : states_) state.uses.resize(static_cast<std::size_t>(chunks));
}

void Builder::send(int rank, int lane, int to, Range range, int channel) {
  add(rank, lane, {Kind::send, range.begin, range.count(), kNobody, to, channel, {}});
}

OpRef Builder::receive(int rank, int lane, int from, Range range, Take take, int channel) {
  const Kind kind = take == Take::copy ? Kind::recv : Kind::recv_reduce;
  return add(rank, lane, {kind, range.begin, range.count(), from, kNobody, channel, {}});
}

void Builder::receive_and_send(int rank, int lane, int from, int to, Range range, Take take, int channel) {
  const Kind kind = take == Take::copy ? Kind::recv_send : Kind::recv_reduce_send;
  add(rank, lane, {kind, range.begin, range.count(), from, to, channel, {}});
}

void Builder::apply(int rank, int lane, Range range) {
  add(rank, lane, {Kind::apply, range.begin, range.count(), kNobody, kNobody, 0, {}});
}

void Builder::signal(int rank, int lane, int to, Range about, int channel, std::vector<OpRef> after) {
  if (about.count() > 0) append(rank, lane, {Kind::send, about.begin, 0, kNobody, to, channel, std::move(after)});
}

void Builder::await_signal(int rank, int lane, int from, Range about, int channel) {
  if (about.count() > 0) append(rank, lane, {Kind::recv, about.begin, 0, from, kNobody, channel, {}});
}

void Builder::transfer(int from, int to, Range range, Take take) {
  send(from, kSendLane, to, range);
  receive(to, kReceiveLane, from, range, take);
}

/// Returns the rank's state, with room for this lane.
Builder::RankState& Builder::state_with(int rank, int lane) {
  RankState& state = states_[static_cast<std::size_t>(rank)];
  auto& lanes = schedule_.ranks[static_cast<std::size_t>(rank)].lanes;
  if (lane >= static_cast<int>(lanes.size())) {
    lanes.resize(static_cast<std::size_t>(lane) + 1);
    state.known.resize(lanes.size());
  }
  return state;
}

/// True if the last op of the same lane already comes after `before`.
bool Builder::implied(const RankState& state, int lane, const OpRef& before) const {
  const auto& ops = state.known[static_cast<std::size_t>(lane)];
  return !ops.empty() && known_of(ops.back(), before.lane) > before.index;
}

/// Returns the ops that must be complete before this one starts, without those that the others imply.
std::vector<OpRef> Builder::needed(int rank, int lane, const Op& op) {
  const RankState& state = state_with(rank, lane);
  std::vector<int> last(state.known.size(), kNobody);  // by lane
  const auto need = [&](const OpRef& before) {
    if (before.lane == kNobody || before.lane == lane || implied(state, lane, before)) return;
    int& index = last[static_cast<std::size_t>(before.lane)];
    index = std::max(index, before.index);
  };
  for (int chunk = op.chunk; chunk < op.chunk + op.count; ++chunk) {
    const Uses& uses = state.uses[static_cast<std::size_t>(chunk)];
    need(uses.write);
    if (op.kind != Kind::send) std::for_each(uses.reads.begin(), uses.reads.end(), need);
  }
  std::vector<OpRef> after;
  for (int other = 0; other < static_cast<int>(last.size()); ++other) {
    const int index = last[static_cast<std::size_t>(other)];
    if (index == kNobody) continue;
    bool follows = false;
    for (int third = 0; third < static_cast<int>(last.size()) && !follows; ++third) {
      const int third_index = last[static_cast<std::size_t>(third)];
      if (third == other || third_index == kNobody) continue;
      follows = known_of(state.known[static_cast<std::size_t>(third)][static_cast<std::size_t>(third_index)], other) >
                index;
    }
    if (!follows) after.push_back({other, index});
  }
  return after;
}

OpRef Builder::add(int rank, int lane, Op op) {
  if (op.count <= 0) return {kNobody, 0};
  op.after = needed(rank, lane, op);
  return append(rank, lane, std::move(op));
}

OpRef Builder::append(int rank, int lane, Op op) {
  RankState& state = state_with(rank, lane);
  auto& lanes = schedule_.ranks[static_cast<std::size_t>(rank)].lanes;

  auto& known = state.known[static_cast<std::size_t>(lane)];
  std::vector<int> clock = known.empty() ? std::vector<int>{} : known.back();
  clock.resize(lanes.size());
  for (const OpRef& before : op.after) {
    const auto& other = state.known[static_cast<std::size_t>(before.lane)][static_cast<std::size_t>(before.index)];
    for (std::size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
  }
  const OpRef self{lane, static_cast<int>(known.size())};
  clock[static_cast<std::size_t>(lane)] = self.index + 1;
  known.push_back(std::move(clock));

  for (int chunk = op.chunk; chunk < op.chunk + op.count; ++chunk) {
    Uses& uses = state.uses[static_cast<std::size_t>(chunk)];
    if (op.kind == Kind::send) {
      uses.reads.push_back(self);
    } else {
      uses = {self, {}};
    }
  }
  lanes[static_cast<std::size_t>(lane)].push_back(std::move(op));
  return self;
}

Schedule Builder::finish() && {
  for (Rank& rank : schedule_.ranks) {
    std::vector<int> renumbered;
    int used = 0;
    for (const Lane& lane : rank.lanes) renumbered.push_back(lane.empty() ? kNobody : used++);
    std::erase_if(rank.lanes, [](const Lane& lane) { return lane.empty(); });
    for (Lane& lane : rank.lanes) {
      for (Op& op : lane) {
        for (OpRef& before : op.after) before.lane = renumbered[static_cast<std::size_t>(before.lane)];
      }
    }
  }
  return std::move(schedule_);
}

}  // namespace param_sync::schedule
