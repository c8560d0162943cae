#include "plan_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace traces_test {
namespace {

using foreign::Kind;
using foreign::kNone;
using foreign::Place;
using foreign::Step;

}  // namespace

PlanLines::PlanLines(const std::vector<GoalRank>& goal, const foreign::Plan& plan)
    : goal_(goal), plan_(plan), queued_(plan.queues.size()) {
  for (std::size_t rank = 0; rank < goal.size(); ++rank) {
    lines_.emplace_back(goal[rank].size());
    for (std::size_t i = 0; i < goal[rank].size(); ++i) {
      const GoalOp& op = goal[rank][i];
      if (op.what == "calc") continue;
      const auto peer = static_cast<std::size_t>(op.peer);
      if (op.what == "send") messages_[{rank, peer, op.tag}].first = i;
      if (op.what == "recv") messages_[{peer, rank, op.tag}].second = i;
    }
  }
  std::vector<int> lanes(goal.size());  // of blocks and queues
  for (std::size_t block = 0; block < plan.blocks.size(); ++block) {
    std::vector<StepAt> steps;
    for (std::size_t i = 0; i < plan.blocks[block].steps.size(); ++i) {
      const Step& step = plan.blocks[block].steps[i];
      const bool is_queued = step.queue != kNone && step.kind != Kind::flush;
      (is_queued ? queued_[static_cast<std::size_t>(step.queue)] : steps).emplace_back(block, i);
    }
    const auto rank = static_cast<std::size_t>(plan.blocks[block].rank);
    read_lane(rank, lanes[rank]++, steps);
  }
  for (std::size_t queue = 0; queue < queued_.size(); ++queue) {
    const auto rank = static_cast<std::size_t>(plan.queues[queue]);
    read_lane(rank, lanes[rank]++, queued_[queue]);
  }
  for (std::size_t rank = 0; rank < goal.size(); ++rank) read_beside(rank, lanes[rank]);
}

GoalOpAt PlanLines::other_end(const GoalOpAt& at) const {
  const GoalOp& op = goal_[at.first][at.second];
  const auto peer = static_cast<std::size_t>(op.peer);
  if (op.what == "send") return {peer, messages_.at({at.first, peer, op.tag}).second};
  return {peer, messages_.at({peer, at.first, op.tag}).first};
}

void PlanLines::read_lane(std::size_t rank, int cpu, const std::vector<StepAt>& steps) {
  std::vector<std::size_t> own;
  for (std::size_t i = 0; i < goal_[rank].size(); ++i) {
    if (goal_[rank][i].cpu == cpu) own.push_back(i);
  }
  std::size_t next = 0;
  for (const StepAt& at : steps) {
    const Step& step = plan_.blocks[at.first].steps[at.second];
    StepLines& lines = steps_[at];
    by_step_[&step] = &lines;
    const auto take = [&](Does does, const std::string& what, int peer, const Place* place) {
      if (next == own.size() || goal_[rank][own[next]].what != what ||
          (peer != -1 && goal_[rank][own[next]].peer != peer))
        throw std::runtime_error(fmt::format("rank {}, cpu {}: line {} is no {}", rank, cpu, next, what));
      lines_[rank][own[next]] = {does, &step, place};
      return own[next++];
    };
    const int self = static_cast<int>(rank);
    if (step.kind == Kind::signal) {
      for (const foreign::Block& block : plan_.blocks) {
        const auto waits = [&step](const Step& other) {
          return other.kind == Kind::wait && other.counter == step.counter;
        };
        if (block.rank != self && std::any_of(block.steps.begin(), block.steps.end(), waits))
          lines.sends.push_back(take(Does::signal, "send", block.rank, nullptr));
      }
    }
    if (step.kind != Kind::move || step.count == 0) continue;
    for (const Place& place : step.from) {
      if (place.rank == self) continue;
      lines.asks.push_back(take(Does::ask, "send", place.rank, &place));
      lines.answers.push_back(take(Does::get_answer, "recv", place.rank, &place));
    }
    const bool receives = step.receives != kNone;
    if (receives) {
      const int from = plan_.connections[static_cast<std::size_t>(step.receives)].from;
      lines.receive = take(Does::receive, "recv", from, nullptr);
    }
    const auto is_local = [self](const Place& place) { return place.rank == self; };
    const bool is_copy = std::any_of(step.to.begin(), step.to.end(), is_local) &&
                         std::all_of(step.from.begin(), step.from.end(), is_local) && !receives;
    if (step.from.size() + (receives ? 1 : 0) > 1 || is_copy) lines.compute = take(Does::compute, "calc", -1, nullptr);
    if (step.sends != kNone) {
      const int to = plan_.connections[static_cast<std::size_t>(step.sends)].to;
      lines.sends.push_back(take(Does::send, "send", to, nullptr));
    }
    for (const Place& place : step.to) {
      if (place.rank != self) lines.sends.push_back(take(Does::put, "send", place.rank, &place));
    }
  }
  const bool is_empty = goal_[rank].size() == 1 && goal_[rank][0].what == "calc";  // a rank without lines
  if (next != own.size() && !is_empty)
    throw std::runtime_error(fmt::format("rank {}, cpu {}: too many lines", rank, cpu));
}

void PlanLines::read_beside(std::size_t rank, int first_cpu) {
  for (std::size_t i = 0; i < goal_[rank].size(); ++i) {
    if (goal_[rank][i].cpu < first_cpu || goal_[rank][i].what == "calc") continue;
    const GoalOpAt other = other_end({rank, i});
    const Line& acts = lines_[other.first][other.second];
    Line& own = lines_[rank][i] = acts;
    if (acts.does == Does::put) own.does = Does::take_data;
    if (acts.does == Does::signal) own.does = Does::take_signal;
    if (acts.does == Does::ask) own.does = Does::be_asked;
    if (acts.does == Does::get_answer) own.does = Does::answer;
  }
}

}  // namespace traces_test
