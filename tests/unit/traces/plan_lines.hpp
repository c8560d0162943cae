#pragma once
/// @file Finds out which lines of GOAL are which steps of the plan that it was written from.

#include "goal_run.hpp"

#include "foreign/plan.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace traces_test {

namespace foreign = param_sync::foreign;

/// What a line does.
enum class Does {
  nothing,      ///< blocks meet
  ask,          ///< asks another rank for data of its memory
  get_answer,   ///< receives them
  receive,      ///< receives a message on a connection
  compute,      ///< adds or copies
  send,         ///< sends a message on a connection
  put,          ///< sends data to another rank's memory
  signal,       ///< signals another rank's counter
  take_data,    ///< beside the blocks: receives what another rank puts
  take_signal,  ///< beside the blocks: receives a signal
  be_asked,     ///< beside the blocks: receives another rank's wish
  answer,       ///< beside the blocks: sends the data
};

/// What a line is.
struct Line {
  Does does = Does::nothing;
  const foreign::Step* step = nullptr;    ///< of the rank that acts
  const foreign::Place* place = nullptr;  ///< ask, get_answer, put, and their other ends
};

/// The lines of a step: GoalOps of its rank.
struct StepLines {
  std::vector<std::size_t> asks, answers, sends;
  std::optional<std::size_t> receive, compute;
};

/// A step of a block, by Plan::blocks and Block::steps.
using StepAt = std::pair<std::size_t, std::size_t>;

/// The lines of a whole plan. Throws std::runtime_error if they are not those of the plan's steps.
class PlanLines {
 public:
  PlanLines(const std::vector<GoalRank>& goal, const foreign::Plan& plan);

  const Line& line(const GoalOpAt& at) const { return lines_[at.first][at.second]; }
  const StepLines& of(const StepAt& step) const { return steps_.at(step); }
  const StepLines& of(const foreign::Step* step) const { return *by_step_.at(step); }
  /// The other end of a message.
  GoalOpAt other_end(const GoalOpAt& at) const;
  /// The steps that a queue does, in order.
  const std::vector<StepAt>& queued(int queue) const { return queued_[static_cast<std::size_t>(queue)]; }

 private:
  void read_lane(std::size_t rank, int cpu, const std::vector<StepAt>& steps);
  void read_beside(std::size_t rank, int first_cpu);

  const std::vector<GoalRank>& goal_;
  const foreign::Plan& plan_;
  std::vector<std::vector<Line>> lines_;
  std::map<StepAt, StepLines> steps_;
  std::map<const foreign::Step*, const StepLines*> by_step_;
  std::vector<std::vector<StepAt>> queued_;
  std::map<std::tuple<std::size_t, std::size_t, std::uint64_t>, std::pair<std::size_t, std::size_t>> messages_;  // by
  // sender, receiver, tag: the lines of both ends
};

}  // namespace traces_test
