#pragma once
/// @file Compares GOAL with the plan that it was written from: the order of its steps, and the data that they make.

#include "plan_lines.hpp"

#include <string>
#include <utility>
#include <vector>

namespace traces_test {

/// What must have happened before what, in each run of GOAL. An event is a line, and whether it has ended.
class PlanOrder {
 public:
  /// Asks for: the steps of a block one after the other; what a step awaits; a signal before its wait; packets before
  /// the step that reads them; all blocks that meet before what follows; the ends of a queue's sends before what
  /// follows a flush.
  PlanOrder(const std::vector<GoalRank>& goal, const foreign::Plan& plan);

  /// The first thing that is wrong, or an empty text. `goal` has the lines of the constructor's, but may wait for less.
  std::string problem(const std::vector<GoalRank>& goal) const;

  /// True if, in each run, the other line has started (or ended) when the line starts.
  bool has_order(const std::vector<GoalRank>& goal, const GoalOpAt& line, const GoalOpAt& before, bool ended) const;

 private:
  struct Event {
    GoalOpAt line;
    bool ended = false;
    auto operator<=>(const Event&) const = default;
  };
  using Events = std::vector<Event>;

  Events after(const StepAt& step);
  Events before(const StepAt& step);
  Events after_queued(int queue, std::size_t count);
  Events done(const StepAt& step, Events waited);
  Events signalled(const foreign::Step& wait, const StepAt& at);
  Events met(const foreign::Step& barrier, const StepAt& at);
  Events packets(const foreign::Step& step, std::size_t rank);
  void require(const Events& waited, const GoalOpAt& line);
  std::vector<std::vector<char>> past(const std::vector<GoalRank>& goal, const GoalOpAt& line) const;

  const foreign::Plan& plan_;
  PlanLines lines_;
  std::map<StepAt, Events> after_;
  std::map<GoalOpAt, Events> needs_;
};

/// Runs GOAL on numbers: a message has what its sender's memory, or sum, has when it is sent. Compares the outputs with
/// what the collective asks for, and all memory with that of a run of the plan itself. Returns the first thing that is
/// wrong, or an empty text. `last`: a line that starts only if no other one can.
std::string problem_of_result(const std::vector<GoalRank>& goal, const foreign::Plan& plan, Ends ends, unsigned seed,
                              std::optional<GoalOpAt> last = {});

}  // namespace traces_test
