#include "traces/schedule_tasks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

namespace param_sync::traces {
namespace {

using schedule::Lane;
using schedule::Op;
using schedule::OpRef;
using schedule::Schedule;

/// The tags of an op's messages.
struct Tags {
  std::uint64_t received = 0;
  std::uint64_t sent = 0;
};

/// Finds which receive takes which message. Ops of several lanes may use one channel, in an order that their waits fix:
/// so this runs the schedule, with rings that have room for all messages. One run is enough, because all runs match
/// alike.
class Matching {
 public:
  explicit Matching(const Schedule& schedule) : schedule_(schedule), tags_(schedule.ranks.size()) {
    for (std::size_t rank = 0; rank < tags_.size(); ++rank) tags_[rank].resize(schedule.ranks[rank].lanes.size());
    for (bool moved = true; moved;) moved = step_all();
    for (std::size_t rank = 0; rank < tags_.size(); ++rank) {
      for (std::size_t lane = 0; lane < tags_[rank].size(); ++lane) {
        if (!is_done(rank, lane)) throw schedule::Error("the schedule does not end: check it first");
      }
    }
  }

  const Tags& of(std::size_t rank, std::size_t lane, std::size_t index) const { return tags_[rank][lane][index]; }

 private:
  bool is_done(std::size_t rank, std::size_t lane) const {
    return tags_[rank][lane].size() == schedule_.ranks[rank].lanes[lane].size();
  }

  bool step_all() {
    bool moved = false;
    for (std::size_t rank = 0; rank < tags_.size(); ++rank) {
      for (std::size_t lane = 0; lane < tags_[rank].size(); ++lane) {
        while (step(rank, lane)) moved = true;
      }
    }
    return moved;
  }

  bool step(std::size_t rank, std::size_t lane) {
    if (is_done(rank, lane)) return false;
    const Op& op = schedule_.ranks[rank].lanes[lane][tags_[rank][lane].size()];
    for (const OpRef& before : op.after) {
      if (tags_[rank][static_cast<std::size_t>(before.lane)].size() <= static_cast<std::size_t>(before.index))
        return false;
    }
    const int self = static_cast<int>(rank);
    Tags tags;
    if (op.receives()) {
      std::deque<std::uint64_t>& arrived = on_their_way_[{op.from, self, op.channel}];
      if (arrived.empty()) return false;
      tags.received = arrived.front();
      arrived.pop_front();
    }
    if (op.sends()) {
      tags.sent = messages_[{self, op.to}]++;
      on_their_way_[{self, op.to, op.channel}].push_back(tags.sent);
    }
    tags_[rank][lane].push_back(tags);
    return true;
  }

  const Schedule& schedule_;
  std::vector<std::vector<std::vector<Tags>>> tags_;  // by rank and lane, of the complete ops
  std::map<std::tuple<int, int, int>, std::deque<std::uint64_t>> on_their_way_;  // tags, by channel
  std::map<std::pair<int, int>, std::uint64_t> messages_;                        // how many, by sender and receiver
};

bool computes(const Op& op) { return op.reduces() || op.kind == schedule::Kind::apply; }

/// Makes the tasks of one rank.
class RankTasks {
 public:
  RankTasks(const Schedule& schedule, const Matching& matching, const Load& load, std::size_t rank)
      : matching_(matching),
        load_(load),
        rank_(rank),
        chunks_(static_cast<std::uint64_t>(schedule.chunks)),
        lanes_(schedule.ranks[rank].lanes) {
    number_ops();
  }

  Tasks make() {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      for (std::size_t index = 0; index < lanes_[lane].size(); ++index) add(lane, index);
    }
    return std::move(tasks_);
  }

 private:
  /// An op may wait for one of a later lane, so all numbers are there before the first task is made.
  void number_ops() {
    int tasks = 0;
    for (const Lane& lane : lanes_) {
      last_.emplace_back();
      for (const Op& op : lane) {
        tasks += (op.receives() ? 1 : 0) + (computes(op) ? 1 : 0) + (op.sends() ? 1 : 0);
        last_.back().push_back(tasks - 1);
      }
    }
  }

  /// The dependency of a task that starts when the op is complete. An op that sends is complete when its message is in
  /// the ring: the network has it, and the chunks may change.
  Dependency end_of(const OpRef& op) const {
    const auto lane = static_cast<std::size_t>(op.lane), index = static_cast<std::size_t>(op.index);
    return {last_[lane][index], lanes_[lane][index].sends()};
  }

  /// Chunks are cut as the executor cuts them (Cut::chunk_begin()).
  std::uint64_t bytes_of(const Op& op) const {
    const auto begin = static_cast<std::uint64_t>(op.chunk), end = begin + static_cast<std::uint64_t>(op.count);
    return (load_.floats * end / chunks_ - load_.floats * begin / chunks_) * sizeof(float);
  }

  void add(std::size_t lane, std::size_t index) {
    const Op& op = lanes_[lane][index];
    const Tags& tags = matching_.of(rank_, lane, index);
    const int lane_number = static_cast<int>(lane);
    std::vector<Dependency> waits;
    if (index > 0) waits.push_back(end_of({lane_number, static_cast<int>(index) - 1}));
    for (const OpRef& before : op.after) {
      const Dependency dependency = end_of(before);
      if (std::find(waits.begin(), waits.end(), dependency) == waits.end()) waits.push_back(dependency);
    }
    const auto push = [&](Task task) {
      task.lane = lane_number;
      task.after = std::exchange(waits, {{static_cast<int>(tasks_.size()), false}});
      tasks_.push_back(std::move(task));
    };
    const std::uint64_t bytes = bytes_of(op);
    if (op.receives()) push({Kind::recv, 0, op.from, tags.received, bytes, 0, {}});
    if (computes(op)) push({Kind::compute, 0, schedule::kNobody, 0, 0, load_.compute_ns(bytes), {}});
    if (op.sends()) push({Kind::send, 0, op.to, tags.sent, bytes, 0, {}});
  }

  const Matching& matching_;
  const Load& load_;
  std::size_t rank_;
  std::uint64_t chunks_;
  const std::vector<Lane>& lanes_;
  std::vector<std::vector<int>> last_;  // the last task of each op, by lane and op
  Tasks tasks_;
};

}  // namespace

std::vector<Tasks> tasks_of(const Schedule& schedule, const Load& load) {
  const auto chunks = static_cast<std::uint64_t>(schedule.chunks);
  if (load.floats < chunks) {
    throw WrongSize(
        fmt::format("{} bytes are {} floats, and the schedule has {} chunks: give at least {} bytes, "
                    "or fewer chunks",
                    load.floats * sizeof(float), load.floats, chunks, chunks * sizeof(float)));
  }
  const Matching matching(schedule);
  std::vector<Tasks> tasks;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    tasks.push_back(RankTasks(schedule, matching, load, rank).make());
  return tasks;
}

}  // namespace param_sync::traces
