#include "report/lane_stall.hpp"

#include "param_sync/executor/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

namespace param_sync {
namespace {

using schedule::Op;

struct LaneAt {
  int rank = 0;
  std::size_t bucket = 0;
  int lane = 0;
  auto operator<=>(const LaneAt&) const = default;
};

/// How far a lane is: it has ended `step` steps, `pass` passes of the next step, and `index` ops of the next pass.
struct LaneProgress {
  std::uint64_t step = 0;
  std::uint64_t pass = 0;
  int index = 0;
  auto operator<=>(const LaneProgress&) const = default;
};

struct Wait {
  LaneAt at;
  Stall::Wait what = Stall::Wait::gradients;
  int peer = schedule::kNobody;
  int peer_lane = 0;
  int peer_index = 0;  ///< index of the op that owes what `at` waits for
};

class Positions {
 public:
  Positions(const ExchangePlan& plan, const std::vector<StepProgress>& reports) : plan_(plan), reports_(reports) {}

  bool has_reported(int rank) const { return report_of(rank) != nullptr; }

  const schedule::Lane& ops(const LaneAt& at) const {
    return plan_.schedules[at.bucket].ranks[static_cast<std::size_t>(at.rank)].lanes[static_cast<std::size_t>(at.lane)];
  }

  /// The lane's rank must have reported.
  LaneProgress progress(const LaneAt& at) const {
    const StepProgress& report = *report_of(at.rank);
    const std::uint64_t ops_of_pass = ops(at).size();
    const std::uint64_t done = report.positions.at(block_of(at)), of_step = ops_of_pass * passes(at.bucket);
    return {report.first_step + done / of_step, done % of_step / ops_of_pass, static_cast<int>(done % ops_of_pass)};
  }

  /// Returns all lanes that have ops, of ranks that have reported.
  std::vector<LaneAt> lanes() const {
    std::vector<LaneAt> all;
    for (const StepProgress& report : reports_) {
      for (std::size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) {
        for (int lane = 0; lane < lane_count(bucket, report.rank); ++lane) {
          if (!ops({report.rank, bucket, lane}).empty()) all.push_back({report.rank, bucket, lane});
        }
      }
    }
    return all;
  }

  /// Follows waits within the lane's rank, and returns the last lane: the given one if it waits for none. A lane that
  /// waits for a credit waits for a lane that has not yet added a message which has one.
  LaneAt behind_others(LaneAt at) const {
    std::set<LaneAt> seen;
    while (seen.insert(at).second) {
      const LaneProgress now = progress(at);
      for (const schedule::OpRef& before : ops(at)[static_cast<std::size_t>(now.index)].after) {
        const LaneAt other{at.rank, at.bucket, before.lane};
        if (progress(other) > LaneProgress{now.step, now.pass, before.index}) continue;
        at = other;
        break;
      }
      if (const Op& op = ops(at)[static_cast<std::size_t>(progress(at).index)]; op.is_signal() && op.sends()) {
        at = credit_holder(at.rank).value_or(at);
      }
    }
    return at;
  }

  /// Returns what the lane's next op waits for at another rank; `peer` is kNobody if it waits for its own rank.
  Wait wait_of(const LaneAt& at) const {
    const LaneProgress now = progress(at);
    const Op& op = ops(at)[static_cast<std::size_t>(now.index)];
    Wait wait{.at = at};
    const bool begins = now.pass == 0 && now.index == 0 && op.after.empty();
    if (op.receives()) {
      find_partner(wait, op, op.from, [&](const Op& sent) { return sent.sends() && sent.to == at.rank; });
      const auto channels = executor::channels_of(plan_.schedules, at.rank);
      const auto program = executor::program_of(plan_.schedules[at.bucket], at.rank, channels, {.weights_apart = true});
      const int flat = program.lanes[static_cast<std::size_t>(at.lane)].begin + now.index;
      const bool of_weights = program.ops[static_cast<std::size_t>(flat)].of_weights;
      if (of_weights || plan_.buckets[at.bucket].carries == Carries::weights) wait.what = Stall::Wait::weights;
      if (!op.sends() || !has_passed(wait)) return wait;
      wait.peer = schedule::kNobody;
    }
    if (op.sends() && !begins) {
      wait.what = Stall::Wait::room;
      find_partner(wait, op, op.to, [&](const Op& taken) { return taken.receives() && taken.from == at.rank; });
    }
    return wait;  // without a peer: it waits for kernels that compute what it sends
  }

  /// Returns a lane of the same rank that must receive factors before the kernels make the weights which this lane
  /// sends: that of the earliest bucket. It may be of another layer, whose weights the kernels make before.
  std::optional<LaneAt> behind_kernels(const LaneAt& at) const {
    if (plan_.buckets[at.bucket].carries != Carries::weights) return std::nullopt;
    for (const LaneAt& other : lanes()) {
      const bool gathers = plan_.buckets[other.bucket].carries == Carries::factors &&
                           ops(other)[static_cast<std::size_t>(progress(other).index)].receives();
      if (other.rank == at.rank && gathers && progress(other).step == progress(at).step) return other;
    }
    return std::nullopt;
  }

  /// True if the rank that owes it has reported, and its lane has already passed the op that owes it.
  bool has_passed(const Wait& wait) const {
    if (!has_reported(wait.peer)) return false;
    const LaneProgress now = progress(wait.at);
    return progress({wait.peer, wait.at.bucket, wait.peer_lane}) > LaneProgress{now.step, now.pass, wait.peer_index};
  }

 private:
  /// Returns a lane of this rank that waits for a message which has a credit.
  std::optional<LaneAt> credit_holder(int rank) const {
    for (const LaneAt& at : lanes()) {
      const LaneProgress now = progress(at);
      const auto next = ops(at).begin() + now.index;
      if (at.rank != rank || next->kind != schedule::Kind::recv_reduce) continue;
      const auto taken = std::count_if(ops(at).begin(), next, [](const Op& op) { return op.reduces(); });
      if (granted(at, now) > taken) return at;
    }
    return std::nullopt;
  }

  /// Returns how many messages the lane's rank has given a credit, in the lane's exchange and pass.
  std::ptrdiff_t granted(const LaneAt& at, const LaneProgress& now) const {
    std::ptrdiff_t count = 0;
    for (int lane = 0; lane < lane_count(at.bucket, at.rank); ++lane) {
      const LaneAt other{at.rank, at.bucket, lane};
      const LaneProgress there = progress(other);
      if (there.step != now.step || there.pass != now.pass) continue;
      count += std::count_if(ops(other).begin(), ops(other).begin() + there.index,
                             [](const Op& op) { return op.is_signal() && op.sends(); });
    }
    return count;
  }

  const StepProgress* report_of(int rank) const {
    const auto found = std::find_if(reports_.begin(), reports_.end(),
                                    [&](const StepProgress& report) { return report.rank == rank; });
    return found == reports_.end() ? nullptr : &*found;
  }
  int lane_count(std::size_t bucket, int rank) const {
    const auto lanes = plan_.schedules[bucket].ranks[static_cast<std::size_t>(rank)].lanes.size();
    return std::max(1, static_cast<int>(lanes));  // a Program has at least one lane, too
  }
  std::size_t block_of(const LaneAt& at) const {
    int block = at.lane;
    for (std::size_t bucket = 0; bucket < at.bucket; ++bucket) block += lane_count(bucket, at.rank);
    return static_cast<std::size_t>(block);
  }
  std::uint64_t passes(std::size_t bucket) const { return plan_.cut_of(bucket).passes(); }

  /// Finds the op of `peer` that sends what `op` receives, or receives what it sends. It has the same chunks and
  /// channel, and as many such ops come before it.
  template <class IsPartner>
  void find_partner(Wait& wait, const Op& op, int peer, IsPartner is_partner) const {
    wait.peer = peer;
    const auto same = [&](const Op& other) {
      return other.chunk == op.chunk && other.count == op.count && other.channel == op.channel;
    };
    const schedule::Lane& own = ops(wait.at);
    const auto at = own.begin() + progress(wait.at).index;
    const auto earlier = std::count_if(
        own.begin(), at, [&](const Op& other) { return same(other) && other.from == op.from && other.to == op.to; });
    const auto& lanes = plan_.schedules[wait.at.bucket].ranks[static_cast<std::size_t>(peer)].lanes;
    std::ptrdiff_t left = earlier;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      for (std::size_t index = 0; index < lanes[lane].size(); ++index) {
        if (!same(lanes[lane][index]) || !is_partner(lanes[lane][index]) || left-- != 0) continue;
        wait.peer_lane = static_cast<int>(lane);
        wait.peer_index = static_cast<int>(index);
      }
    }
  }

  const ExchangePlan& plan_;
  const std::vector<StepProgress>& reports_;
};

/// Returns the lanes that are furthest behind: in the earliest step those of the bucket that the next step needs first,
/// since the lanes of other buckets may only be letting them go first.
std::vector<LaneAt> earliest_lanes(const Positions& positions) {
  std::vector<LaneAt> earliest;
  const auto key = [&](const LaneAt& at) { return std::tuple(positions.progress(at).step, at.bucket); };
  for (const LaneAt& at : positions.lanes()) {
    if (!earliest.empty() && key(at) > key(earliest.front())) continue;
    if (!earliest.empty() && key(at) < key(earliest.front())) earliest.clear();
    earliest.push_back(at);
  }
  return earliest;
}

}  // namespace

Stall find_lane_stall(const ExchangePlan& plan, const std::vector<StepProgress>& reports, int nodes) {
  const Positions positions(plan, reports);
  Stall stall;
  LaneAt at = positions.behind_others(earliest_lanes(positions).front());
  stall.step = positions.progress(at).step;
  stall.waiting = stall.waited_for = at.rank;
  std::set<LaneAt> seen;
  bool silent = false;
  while (seen.insert(at).second) {
    const Wait wait = positions.wait_of(at);
    if (wait.peer == schedule::kNobody) {  // it waits for its own kernels
      const auto behind = positions.behind_kernels(at);
      if (!behind) break;
      at = *behind;
      continue;
    }
    stall.wait = wait.what;
    stall.waiting = at.rank;
    stall.waited_for = wait.peer;
    silent = !positions.has_reported(wait.peer);
    if (silent || positions.has_passed(wait)) break;
    at = positions.behind_others({wait.peer, at.bucket, wait.peer_lane});
  }
  std::set<int> suspects{stall.waited_for};
  for (int rank = 0; silent && rank < nodes; ++rank) {  // a silent node may wait for another silent one
    if (!positions.has_reported(rank)) suspects.insert(rank);
  }
  stall.suspects.assign(suspects.begin(), suspects.end());
  stall.suspect_reported = !silent;
  return stall;
}

std::string describe_lanes_alone(const ExchangePlan& plan, const StepProgress& report, double timeout_s) {
  const std::vector<StepProgress> reports{report};
  const Positions positions(plan, reports);
  std::set<std::string> waits, waits_for_weights;
  for (const LaneAt& lane : earliest_lanes(positions)) {
    const LaneAt at = positions.behind_others(lane);
    Wait wait = positions.wait_of(at);
    if (const auto behind = positions.behind_kernels(at); behind && wait.peer == schedule::kNobody) {
      wait = positions.wait_of(*behind);
    }
    if (wait.peer == schedule::kNobody) continue;
    (wait.what == Stall::Wait::weights ? waits_for_weights : waits)
        .insert(wait_text(wait.what, wait.peer, positions.progress(at).step));
  }
  if (waits.empty()) waits = waits_for_weights;  // beside other waits, those for weights may only follow from them
  if (waits.empty()) waits.insert("its own kernels");
  return describe_waits(report.rank, {waits.begin(), waits.end()}, timeout_s);
}

}  // namespace param_sync
