#include "param_sync/schedule/rank_order.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

namespace param_sync::schedule {
namespace {

/// How a value was made. Numbers below the number of ranks are a rank's data; other numbers are sums of two terms.
using Term = int;

struct LaneAt {
  int rank = 0;
  int lane = 0;
  int index = 0;
};

/// Runs a schedule on terms. Rings hold any number of messages. One run is enough: all have the same result.
class TermRun {
 public:
  explicit TermRun(const Schedule& schedule) : schedule_(schedule), next_(schedule.nodes()) {
    for (int rank = 0; rank < schedule.nodes(); ++rank) {
      data_.emplace_back(static_cast<std::size_t>(schedule.chunks), rank);
      done_.emplace_back(schedule.ranks[static_cast<std::size_t>(rank)].lanes.size());
      for (int lane = 0; lane < static_cast<int>(done_.back().size()); ++lane) lanes_.push_back({rank, lane});
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (const LaneAt& at : lanes_) {
        while (step(at)) moved = true;
      }
    }
  }

  Term sum(Term a, Term b) {
    const auto [found, is_new] = sums_.try_emplace(std::minmax(a, b), next_);
    if (is_new) ++next_;
    return found->second;
  }
  Term at(int rank, int chunk) const { return data_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(chunk)]; }

 private:
  bool step(const LaneAt& at) {
    const auto rank = static_cast<std::size_t>(at.rank);
    const Lane& lane = schedule_.ranks[rank].lanes[static_cast<std::size_t>(at.lane)];
    int& index = done_[rank][static_cast<std::size_t>(at.lane)];
    if (index == static_cast<int>(lane.size())) return false;
    const Op& op = lane[static_cast<std::size_t>(index)];
    for (const OpRef& before : op.after) {
      if (done_[rank][static_cast<std::size_t>(before.lane)] <= before.index) return false;
    }
    if (op.receives()) {
      auto& arrived = rings_[{op.from, at.rank, op.channel}];
      if (static_cast<int>(arrived.size()) < std::max(op.count, 1)) return false;
      if (op.is_signal()) arrived.pop_front();
      for (int chunk = op.chunk; chunk < op.chunk + op.count; ++chunk) {
        Term& own = data_[rank][static_cast<std::size_t>(chunk)];
        own = op.reduces() ? sum(arrived.front(), own) : arrived.front();
        arrived.pop_front();
      }
    }
    if (op.sends()) {
      const auto first = data_[rank].begin() + op.chunk;
      auto& ring = rings_[{at.rank, op.to, op.channel}];
      ring.insert(ring.end(), first, first + std::max(op.count, 1));  // a signal takes one entry, which is not used
    }
    ++index;
    return true;
  }

  const Schedule& schedule_;
  std::vector<LaneAt> lanes_;
  std::vector<std::vector<int>> done_;   // number of complete ops, by rank and lane
  std::vector<std::vector<Term>> data_;  // by rank and chunk
  std::map<std::tuple<int, int, int>, std::deque<Term>> rings_;
  std::map<std::pair<Term, Term>, Term> sums_;
  Term next_;
};

}  // namespace

bool sums_in_rank_order(const Schedule& schedule) {
  const bool scattered = schedule.result == Result::reduce_scatter;
  if (is_copied(schedule.result)) return false;
  TermRun run(schedule);
  Term wanted = 0;
  for (int rank = 1; rank < schedule.workers; ++rank) wanted = run.sum(wanted, rank);
  for (int rank = 0; rank < schedule.workers; ++rank) {
    const Range all{0, schedule.chunks}, own = scattered ? part_of(all, rank, schedule.workers) : all;
    for (int chunk = own.begin; chunk < own.end; ++chunk) {
      if (run.at(rank, chunk) != wanted) return false;
    }
  }
  return true;
}

}  // namespace param_sync::schedule
