#include "goal_run.hpp"

#include <fmt/format.h>

#include <optional>
#include <random>
#include <tuple>
#include <utility>

namespace traces_test {
namespace {

class Run {
 public:
  Run(const std::vector<GoalRank>& goal, Ends ends, unsigned seed, GoalListener& listener, std::optional<GoalOpAt> last)
      : goal_(goal), ends_(ends), random_(seed), listener_(listener), last_(std::move(last)) {
    for (std::size_t rank = 0; rank < goal.size(); ++rank) {
      states_.emplace_back(goal[rank].size());
      for (std::size_t i = 0; i < goal[rank].size(); ++i) {
        for (const std::size_t before : goal[rank][i].started) states_[rank][before].wait_for_start.push_back(i);
        for (const std::size_t before : goal[rank][i].ended) states_[rank][before].wait_for_end.push_back(i);
        states_[rank][i].missing = goal[rank][i].started.size() + goal[rank][i].ended.size();
        if (states_[rank][i].missing == 0) ready_.emplace_back(rank, i);
      }
    }
  }

  GoalRun run() {
    while (run_.fault.empty() && !ready_.empty()) {
      std::swap(ready_[random_() % ready_.size()], ready_.back());
      if (last_ && ready_.back() == *last_) std::swap(ready_.front(), ready_.back());
      const GoalOpAt chosen = ready_.back();
      ready_.pop_back();
      start(chosen);
    }
    if (run_.fault.empty()) look_for_rest();
    return std::move(run_);
  }

 private:
  struct State {
    std::size_t missing = 0;                                // dependencies that are not yet fulfilled
    std::vector<std::size_t> wait_for_start, wait_for_end;  // ops of the rank
    bool has_ended = false;
  };
  using Key = std::tuple<std::size_t, std::size_t, std::uint64_t>;  // sender, receiver, tag

  const GoalOp& op(const GoalOpAt& at) const { return goal_[at.first][at.second]; }

  void free(std::size_t rank, const std::vector<std::size_t>& waiting) {
    for (const std::size_t i : waiting) {
      if (--states_[rank][i].missing == 0) ready_.emplace_back(rank, i);
    }
  }
  void end(const GoalOpAt& at) {
    State& state = states_[at.first][at.second];
    if (std::exchange(state.has_ended, true)) return;  // a send that has ended at once
    free(at.first, state.wait_for_end);
  }

  void start(const GoalOpAt& at) {
    listener_.started(at);
    free(at.first, states_[at.first][at.second].wait_for_start);
    const bool sends = op(at).what == "send";
    if (op(at).what == "calc" || (sends && ends_ == Ends::at_once)) end(at);
    if (op(at).what == "calc") return;
    const auto peer = static_cast<std::size_t>(op(at).peer);
    const Key key = sends ? Key{at.first, peer, op(at).tag} : Key{peer, at.first, op(at).tag};
    std::optional<GoalOpAt>& own = (sends ? sent_ : posted_)[key];
    std::optional<GoalOpAt>& other = (sends ? posted_ : sent_)[key];
    if (own) run_.fault = fmt::format("rank {}, op {}: the tag {} is taken", at.first, at.second + 1, op(at).tag);
    own = at;
    if (other) match(*sent_[key], *posted_[key], key);
  }

  void match(const GoalOpAt send, const GoalOpAt recv, const Key& key) {
    if (op(send).size != op(recv).size)
      run_.fault = fmt::format("rank {}, op {}: other size", recv.first, recv.second + 1);
    sent_[key].reset();
    posted_[key].reset();
    Traffic& traffic = run_.traffic[{static_cast<int>(send.first), static_cast<int>(recv.first)}];
    ++traffic.messages;
    traffic.bytes += op(recv).size;
    listener_.received(send, recv);
    end(send);
    end(recv);
  }

  void look_for_rest() {
    for (std::size_t rank = 0; rank < goal_.size(); ++rank) {
      for (std::size_t i = 0; i < goal_[rank].size(); ++i) {
        if (!states_[rank][i].has_ended) run_.fault = fmt::format("rank {}, op {}: does not end", rank, i + 1);
      }
    }
    for (const auto& [key, at] : sent_) {
      if (at) run_.fault = fmt::format("rank {}, op {}: no rank receives the message", at->first, at->second + 1);
    }
  }

  const std::vector<GoalRank>& goal_;
  Ends ends_;
  std::minstd_rand random_;
  GoalListener& listener_;
  std::optional<GoalOpAt> last_;
  std::vector<std::vector<State>> states_;                // by rank and op
  std::vector<GoalOpAt> ready_;                           // ops that may start
  std::map<Key, std::optional<GoalOpAt>> sent_, posted_;  // not yet matched
  GoalRun run_;
};

}  // namespace

GoalRun run_goal(const std::vector<GoalRank>& goal, Ends ends, unsigned seed, GoalListener& listener,
                 std::optional<GoalOpAt> last) {
  return Run(goal, ends, seed, listener, std::move(last)).run();
}

GoalRun run_goal(const std::vector<GoalRank>& goal, Ends ends, unsigned seed) {
  GoalListener nobody;
  return run_goal(goal, ends, seed, nobody);
}

}  // namespace traces_test
