#include "param_sync/executor/order.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>

namespace param_sync::executor {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// Executes a schedule: knows how far all lanes are, and how many chunks are on their way.
class Walk {
 public:
  explicit Walk(const schedule::Schedule& schedule) : schedule_(schedule) {
    for (const schedule::Rank& rank : schedule.ranks) done_.emplace_back(rank.lanes.size());
  }

  std::vector<OpLocation> order() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < schedule_.nodes(); ++rank) {
        for (int lane = 0; lane < static_cast<int>(done_[at(rank)].size()); ++lane) {
          while (step(rank, lane)) moved = true;
        }
      }
    }
    return std::move(order_);
  }

 private:
  bool step(int rank, int lane) {
    const schedule::Lane& ops = schedule_.ranks[at(rank)].lanes[at(lane)];
    int& done = done_[at(rank)][at(lane)];
    if (at(done) == ops.size()) return false;
    const schedule::Op& op = ops[at(done)];
    for (const schedule::OpRef& before : op.after) {
      if (done_[at(rank)][at(before.lane)] <= before.index) return false;
    }
    const int chunks = std::max(op.count, 1);  // a signal is a message, too
    if (op.receives()) {
      int& arrived = messages_[{op.from, rank, op.channel}];
      if (arrived < chunks) return false;
      arrived -= chunks;
    }
    if (op.sends()) messages_[{rank, op.to, op.channel}] += chunks;
    order_.push_back({rank, lane, done++});
    return true;
  }

  const schedule::Schedule& schedule_;
  std::vector<std::vector<int>> done_;  // by rank and lane
  std::map<std::tuple<int, int, int>, int> messages_;
  std::vector<OpLocation> order_;
};

}  // namespace

std::vector<OpLocation> order_of(const schedule::Schedule& schedule) { return Walk(schedule).order(); }

}  // namespace param_sync::executor
