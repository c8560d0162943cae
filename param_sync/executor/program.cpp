#include "param_sync/executor/program.hpp"

#include "param_sync/executor/channel_uses.hpp"
#include "param_sync/executor/order.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace param_sync::executor {
namespace {

int index_of(const std::vector<Channel>& channels, const Channel& channel) {
  return static_cast<int>(std::lower_bound(channels.begin(), channels.end(), channel) - channels.begin());
}

bool has_signals(const schedule::Rank& rank) {
  return std::any_of(rank.lanes.begin(), rank.lanes.end(), [](const schedule::Lane& lane) {
    return std::any_of(lane.begin(), lane.end(), [](const schedule::Op& op) { return op.is_signal(); });
  });
}

/// True if two lanes send on one channel, or two receive.
bool lanes_share_channels(const schedule::Rank& rank) {
  std::map<std::pair<Channel, bool>, std::size_t> lane_of;  // by channel, and whether it sends
  bool shared = false;
  for (std::size_t lane = 0; lane < rank.lanes.size(); ++lane) {
    for_each_channel_use(rank.lanes[lane], [&](const Channel& channel, bool sends) {
      shared |= lane_of.try_emplace({channel, sends}, lane).first->second != lane;
    });
  }
  return shared;
}

/// Executes a parameter server's schedule, and finds which ops move weights: by rank, lane and op.
class WeightsRun {
 public:
  using Flags = std::vector<std::vector<std::vector<bool>>>;

  explicit WeightsRun(const schedule::Schedule& schedule) {
    for (const schedule::Rank& rank : schedule.ranks) {
      chunks_.emplace_back(static_cast<std::size_t>(schedule.chunks));
      flags_.emplace_back(rank.lanes.size());
    }
    for (const OpLocation& location : order_of(schedule)) {
      step(location, schedule.ranks[at(location.rank)].lanes[at(location.lane)][at(location.index)]);
    }
  }

  const Flags& flags() const { return flags_; }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  void step(const OpLocation& location, const schedule::Op& op) {
    std::vector<bool>& chunks = chunks_[at(location.rank)];
    if (op.receives()) {
      auto& arrived = messages_[{op.from, location.rank, op.channel}];
      if (op.is_signal()) arrived.pop_front();
      for (int chunk = op.chunk; chunk < op.chunk + op.count; ++chunk) {
        chunks[at(chunk)] = arrived.front();
        arrived.pop_front();
      }
    }
    for (int chunk = op.chunk; chunk < op.chunk + op.count; ++chunk) {
      if (op.kind == schedule::Kind::apply) chunks[at(chunk)] = true;
      if (chunks[at(chunk)] != chunks[at(op.chunk)]) {
        throw schedule::Error(schedule::location(location.rank, location.lane, location.index) + ": " +
                              schedule::describe(op) + " moves weights and gradients together");
      }
    }
    if (op.sends()) {
      auto& sent = messages_[{location.rank, op.to, op.channel}];
      sent.insert(sent.end(), chunks.begin() + op.chunk, chunks.begin() + op.chunk + std::max(op.count, 1));
    }
    flags_[at(location.rank)][at(location.lane)].push_back(!op.is_signal() && chunks[at(op.chunk)]);
  }

  std::vector<std::vector<bool>> chunks_;  // by rank and chunk: true if the chunk is weights
  Flags flags_;                            // they grow as ops are done
  std::map<std::tuple<int, int, int>, std::deque<bool>> messages_;
};

/// True if the op adds to the same chunks as the op before it, and no op uses the sum between the two: such an op would
/// wait for the op before. A signal may wait for it, since it uses no chunk.
bool continues_sum(const schedule::Rank& rank, std::size_t lane, std::size_t index) {
  const schedule::Op &before = rank.lanes[lane][index - 1], &op = rank.lanes[lane][index];
  if (before.kind != schedule::Kind::recv_reduce || op.kind != schedule::Kind::recv_reduce ||
      before.chunk != op.chunk || before.count != op.count || !op.after.empty()) {
    return false;
  }
  const schedule::OpRef partial{static_cast<int>(lane), static_cast<int>(index) - 1};
  for (const schedule::Lane& other : rank.lanes) {
    for (const schedule::Op& user : other) {
      if (user.is_signal()) continue;
      if (std::find(user.after.begin(), user.after.end(), partial) != user.after.end()) return false;
    }
  }
  return true;
}

/// Makes one sum in the order of ranks of ops [begin, end) of a lane. The data of the last op is added from its ring.
void sum_in_rank_order(Program& program, int rank, const schedule::Lane& lane, std::size_t begin, std::size_t end,
                       int first_op) {
  if (end - begin < 2) return;
  std::vector<std::pair<int, int>> operands{{rank, kOperandOwn}};
  for (std::size_t i = begin; i < end; ++i) {
    const bool last = i + 1 == end;
    const int entry = static_cast<int>(i - begin);
    program.ops[static_cast<std::size_t>(first_op) + i].reorder = last ? LaneOp::kSums : entry;
    operands.emplace_back(lane[i].from, last ? kOperandArriving : entry);
    if (!last) program.reorder_entries = std::max(program.reorder_entries, entry + 1);
  }
  program.reorder_chunks = std::max(program.reorder_chunks, lane[begin].count);
  std::sort(operands.begin(), operands.end());
  LaneOp& sums = program.ops[static_cast<std::size_t>(first_op) + end - 1];
  sums.operands_begin = static_cast<int>(program.operands.size());
  for (const auto& [of_rank, operand] : operands) program.operands.push_back(operand);
  sums.operands_end = static_cast<int>(program.operands.size());
}

}  // namespace

std::vector<Channel> channels_of(const std::vector<schedule::Schedule>& schedules, int rank) {
  std::set<Channel> channels;
  for (const schedule::Schedule& schedule : schedules) {
    for (const schedule::Lane& lane : schedule.ranks[static_cast<std::size_t>(rank)].lanes) {
      for_each_channel_use(lane, [&](const Channel& channel, bool) { channels.insert(channel); });
    }
  }
  return {channels.begin(), channels.end()};
}

Program program_of(const schedule::Schedule& schedule, int rank, const std::vector<Channel>& channels,
                   const Execution& execution) {
  const schedule::Rank& part = schedule.ranks[static_cast<std::size_t>(rank)];
  Program program;
  program.chunks = schedule.chunks;
  program.lanes_meet = lanes_share_channels(part) || has_signals(part);
  WeightsRun::Flags weights;
  if (execution.weights_apart && schedule.result == schedule::Result::parameter_server) {
    weights = WeightsRun(schedule).flags();
  }
  for (std::size_t number = 0; number < part.lanes.size(); ++number) {
    const schedule::Lane& lane = part.lanes[number];
    const int begin = static_cast<int>(program.ops.size());
    for (std::size_t index = 0; index < lane.size(); ++index) {
      const schedule::Op& op = lane[index];
      LaneOp flat{.kind = op.kind, .chunk = op.chunk, .count = op.count};
      if (op.receives()) flat.in = index_of(channels, {op.from, op.channel});
      if (op.sends()) flat.out = index_of(channels, {op.to, op.channel});
      flat.after_begin = static_cast<int>(program.after.size());
      for (const schedule::OpRef& before : op.after) program.after.push_back({before.lane, before.index + 1});
      flat.after_end = static_cast<int>(program.after.size());
      flat.of_weights = !weights.empty() && weights[static_cast<std::size_t>(rank)][number][index];
      program.ops.push_back(flat);
    }
    for (std::size_t first = 0, index = 1; execution.rank_order && index <= lane.size(); ++index) {
      if (index < lane.size() && continues_sum(part, number, index)) continue;
      sum_in_rank_order(program, rank, lane, first, index, begin);
      first = index;
    }
    program.lanes.push_back({begin, static_cast<int>(program.ops.size())});
  }
  if (program.lanes.empty()) program.lanes.push_back({});
  return program;
}

Sent& Sent::operator+=(const Sent& other) {
  messages += other.messages;
  floats += other.floats;
  return *this;
}

Sent sent_in_step(const Program& program, const Cut& cut, bool of_weights) {
  Sent sent;
  for (std::uint64_t pass = 0; pass < cut.passes(); ++pass) {
    for (const LaneOp& op : program.ops) {
      if (op.out == schedule::kNobody || op.of_weights != of_weights) continue;
      ++sent.messages;
      for (int chunk = op.chunk; chunk < op.chunk + op.count; ++chunk) {
        sent.floats += cut.part(static_cast<std::uint32_t>(chunk), pass).count();
      }
    }
  }
  return sent;
}

}  // namespace param_sync::executor
