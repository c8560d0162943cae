#include "param_sync/schedule/senders.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

namespace param_sync::schedule {
namespace {

/// Number of complete ops of each lane that adds: a vector clock of these lanes.
using AddedOps = std::vector<int>;

void merge_into(AddedOps& clock, const AddedOps& other) {
  for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

struct SentMessage {
  AddedOps before;  ///< clock when its op starts
  AddedOps after;   ///< clock when its op ends
};

/// The addition of one message at a rank.
struct Addition {
  AddedOps before;    ///< clock when the op that sends the message starts
  std::size_t entry;  ///< clock entry of the lane that adds it
  int index = 0;      ///< index of the op that adds it

  bool ends_before(const Addition& other) const { return other.before[entry] > index; }
};

struct AddingLane {
  int rank = 0;
  const Lane* ops = nullptr;
  std::vector<AddedOps> ended;  ///< clocks when its ops end, by op
  std::size_t entry = 0;        ///< its entry in clocks
  bool adds = false;
};

/// Runs a schedule with rings that have room for all messages.
class AdditionsRun {
 public:
  explicit AdditionsRun(const Schedule& schedule) : additions_(schedule.ranks.size()) {
    for (int rank = 0; rank < schedule.nodes(); ++rank) {
      first_lane_.push_back(lanes_.size());
      for (const Lane& ops : schedule.ranks[static_cast<std::size_t>(rank)].lanes) {
        AddingLane lane;
        lane.rank = rank;
        lane.ops = &ops;
        lane.adds = std::any_of(ops.begin(), ops.end(), [](const Op& op) { return op.reduces(); });
        if (lane.adds) lane.entry = entries_++;
        lanes_.push_back(std::move(lane));
      }
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (AddingLane& lane : lanes_) {
        while (step(lane)) moved = true;
      }
    }
  }

  /// Additions, by rank.
  const std::vector<std::vector<Addition>>& additions() const { return additions_; }

 private:
  bool step(AddingLane& lane) {
    const std::size_t index = lane.ended.size();
    if (index == lane.ops->size()) return false;
    const Op& op = (*lane.ops)[index];
    AddedOps clock = index == 0 ? AddedOps(entries_) : lane.ended.back();
    for (const OpRef& before : op.after) {
      const AddingLane& other =
          lanes_[first_lane_[static_cast<std::size_t>(lane.rank)] + static_cast<std::size_t>(before.lane)];
      if (other.ended.size() <= static_cast<std::size_t>(before.index)) return false;
      merge_into(clock, other.ended[static_cast<std::size_t>(before.index)]);
    }
    const AddedOps started = clock;
    if (op.receives()) {
      auto& arrived = messages_[{op.from, lane.rank, op.channel}];
      if (arrived.empty()) return false;
      merge_into(clock, arrived.front().after);
      if (op.reduces()) {
        additions_[static_cast<std::size_t>(lane.rank)].push_back(
            {std::move(arrived.front().before), lane.entry, static_cast<int>(index)});
      }
      arrived.pop_front();
    }
    if (lane.adds) clock[lane.entry] = static_cast<int>(index) + 1;
    if (op.sends()) messages_[{lane.rank, op.to, op.channel}].push_back({started, clock});
    lane.ended.push_back(std::move(clock));
    return true;
  }

  std::vector<std::size_t> first_lane_;  // by rank
  std::vector<AddingLane> lanes_;
  std::size_t entries_ = 0;
  std::map<std::tuple<int, int, int>, std::deque<SentMessage>> messages_;
  std::vector<std::vector<Addition>> additions_;
};

/// Counts how many additions may be under way at the same time. In a chain each addition ends before the next one
/// begins. The result is the least number of chains that together contain all additions (Dilworth, 1950). A matching of
/// each addition with the next one of its chain finds these chains (Fulkerson, 1956).
class Chains {
 public:
  explicit Chains(const std::vector<Addition>& all) : all_(all), previous_(all.size(), kNobody) {}

  int count() {
    int linked = 0;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      seen_.assign(all_.size(), false);
      if (link(i)) ++linked;
    }
    return static_cast<int>(all_.size()) - linked;
  }

 private:
  /// Finds an addition that can follow `from` in a chain. If that one already follows another addition, finds a new
  /// successor for the other one.
  bool link(std::size_t from) {
    for (std::size_t to = 0; to < all_.size(); ++to) {
      if (seen_[to] || !all_[from].ends_before(all_[to])) continue;
      seen_[to] = true;
      if (previous_[to] != kNobody && !link(static_cast<std::size_t>(previous_[to]))) continue;
      previous_[to] = static_cast<int>(from);
      return true;
    }
    return false;
  }

  const std::vector<Addition>& all_;
  std::vector<int> previous_;  // by addition: the one before it in its chain
  std::vector<bool> seen_;
};

}  // namespace

int senders_at_once(const Schedule& schedule) {
  int most = 0;
  const AdditionsRun run(schedule);
  for (const auto& additions : run.additions()) most = std::max(most, Chains(additions).count());
  return most;
}

}  // namespace param_sync::schedule
