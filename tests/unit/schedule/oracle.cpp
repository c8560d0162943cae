#include "oracle.hpp"

#include <deque>
#include <map>
#include <random>
#include <tuple>
#include <vector>

namespace schedule_test {
namespace {

using namespace param_sync::schedule;

constexpr std::uint64_t kSignal = 0x516e'a100'0000'0001;  // no data is equal to it, but for one time in 2^64

std::uint64_t weights_of(std::uint64_t sum) { return sum * 0x9e3779b97f4a7c15 + 1; }

struct OracleLane {
  int rank = 0;
  const Lane* ops = nullptr;
  std::size_t index = 0;
  int done = 0;
  bool holds = false;
  std::uint64_t held = 0;
};

class Oracle {
 public:
  Oracle(const Schedule& schedule, std::uint64_t seed) : schedule_(schedule), random_(seed) {
    room_ = 1 + random_() % 3;
    wanted_.resize(static_cast<std::size_t>(schedule.chunks));
    data_.resize(schedule.ranks.size());
    first_.resize(schedule.ranks.size());
    for (int rank = 0; rank < schedule.nodes(); ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      for (auto& sum : wanted_) {
        data_[r].push_back(random_());
        if (rank < schedule.workers) sum += data_[r].back();
      }
      first_[r] = lanes_.size();
      for (const Lane& lane : schedule.ranks[r].lanes) lanes_.push_back({rank, &lane});
    }
  }

  std::string run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t i = 0, start = random_(); i < lanes_.size(); ++i) {
        OracleLane& lane = lanes_[(start + i) % lanes_.size()];
        for (std::uint64_t steps = 1 + random_() % 4; steps > 0 && step(lane); --steps) moved = true;
      }
    }
    return problem();
  }

 private:
  bool step(OracleLane& lane) {
    if (lane.index == lane.ops->size()) return false;
    const Op& op = (*lane.ops)[lane.index];
    for (const OpRef& before : op.after) {
      const std::size_t other = first_[static_cast<std::size_t>(lane.rank)] + static_cast<std::size_t>(before.lane);
      if (lanes_[other].index <= static_cast<std::size_t>(before.index)) return false;
    }
    auto& mine = data_[static_cast<std::size_t>(lane.rank)][static_cast<std::size_t>(op.chunk + lane.done)];
    if (op.kind == Kind::apply) {
      mine = weights_of(mine);
    } else if (op.kind == Kind::send || lane.holds) {
      auto& ring = rings_[{lane.rank, op.to, op.channel}];
      if (ring.size() >= room_) return false;
      ring.push_back(op.is_signal() ? kSignal : lane.holds ? lane.held : mine);
      lane.holds = false;
    } else {
      auto& ring = rings_[{op.from, lane.rank, op.channel}];
      if (ring.empty()) return false;
      if (op.is_signal() != (ring.front() == kSignal)) return false;
      if (!op.is_signal()) mine = ring.front() + (op.reduces() ? mine : 0);
      ring.pop_front();
      lane.held = mine;
      lane.holds = op.sends();
      if (lane.holds) return true;
    }
    if (++lane.done >= op.count) {
      lane.done = 0;
      ++lane.index;
    }
    return true;
  }

  std::string problem() {
    for (const OracleLane& lane : lanes_) {
      if (lane.index != lane.ops->size()) return "a lane did not end";
    }
    for (const auto& [ends, ring] : rings_) {
      if (!ring.empty()) return "a message is left";
    }
    for (int rank = 0; rank < schedule_.workers; ++rank) {
      for (std::size_t chunk = 0; chunk < wanted_.size(); ++chunk) {
        const bool weights = schedule_.result == Result::parameter_server;
        const std::uint64_t right = weights ? weights_of(wanted_[chunk]) : wanted_[chunk];
        if (data_[static_cast<std::size_t>(rank)][chunk] != right) return "a sum is wrong";
      }
    }
    return "";
  }

  const Schedule& schedule_;
  std::mt19937_64 random_;
  std::size_t room_;
  std::vector<std::uint64_t> wanted_;
  std::vector<std::vector<std::uint64_t>> data_;
  std::vector<std::size_t> first_;
  std::vector<OracleLane> lanes_;
  std::map<std::tuple<int, int, int>, std::deque<std::uint64_t>> rings_;
};

}  // namespace

std::string problem_of_run(const Schedule& schedule, std::uint64_t seed) { return Oracle(schedule, seed).run(); }

std::string problem_of_runs(const Schedule& schedule, int runs) {
  for (int seed = 0; seed < runs; ++seed) {
    const std::string problem = problem_of_run(schedule, static_cast<std::uint64_t>(seed));
    if (!problem.empty()) return problem + ", seed " + std::to_string(seed);
  }
  return "";
}

}  // namespace schedule_test
