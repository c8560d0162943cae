#include "plan_checks.hpp"

#include "foreign/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <random>
#include <set>

namespace traces_test {
namespace {

using foreign::Buffer;
using foreign::Collective;
using foreign::kNone;
using foreign::Place;
using foreign::Step;

using Cells = std::vector<std::uint64_t>;

/// The memory of all ranks, of numbers. At the beginning all differ.
class Numbers {
 public:
  explicit Numbers(const foreign::Plan& plan) : places_(plan, plan.runs_in_place) {}

  std::uint64_t& at(const Place& place, int unit) {
    const std::size_t index = places_.index(place, unit, 0);
    while (cells_.size() <= index) cells_.push_back(std::mt19937_64(cells_.size())());
    return cells_[index];
  }
  Cells read(const Place& place, int count) {
    Cells cells;
    for (int unit = 0; unit < count; ++unit) cells.push_back(at(place, unit));
    return cells;
  }
  void write(const Place& place, const Cells& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) at(place, static_cast<int>(i)) = cells[i];
  }
  /// True if no cell differs.
  bool is_equal(Numbers& other) {
    const std::size_t cells = std::max(cells_.size(), other.cells_.size());
    for (Numbers* each : {this, &other}) {
      while (each->cells_.size() < cells) each->cells_.push_back(std::mt19937_64(each->cells_.size())());
    }
    return cells_ == other.cells_;
  }

 private:
  foreign::Memory places_;  // says which places share a cell
  Cells cells_;
};

void add(Cells& sum, const Cells& term) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += i < term.size() ? term[i] : 0;
}

/// Runs the plan itself, block after block. A queue does at once what is put into it.
class PlanRun {
 public:
  explicit PlanRun(const foreign::Plan& plan)
      : memory(plan),
        plan_(plan),
        done_(plan.blocks.size()),
        messages_(plan.connections.size()),
        met_(plan.barriers.size()) {
    for (const foreign::Counter& counter : plan.counters) counters_.push_back(counter.initial);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t block = 0; block < done_.size(); ++block) {
        for (; done_[block] < plan.blocks[block].steps.size() && step(block); ++done_[block]) moved = true;
      }
    }
  }

  Numbers memory;

 private:
  bool step(std::size_t block) {
    const Step& step = plan_.blocks[block].steps[done_[block]];
    const auto counter = static_cast<std::size_t>(step.counter);
    if (step.kind == foreign::Kind::signal) ++counters_[counter];
    if (step.kind == foreign::Kind::wait) return counters_[counter] > 0 && counters_[counter]-- > 0;
    if (step.kind == foreign::Kind::await)
      return done_[static_cast<std::size_t>(step.awaited_block)] > static_cast<std::size_t>(step.awaited_step);
    if (step.kind == foreign::Kind::barrier) {
      auto& here = met_[static_cast<std::size_t>(step.barrier)];
      here.insert({block, done_[block]});
      const int blocks = plan_.barriers[static_cast<std::size_t>(step.barrier)].blocks;
      return static_cast<int>(here.size()) >= blocks;  // no plan here uses a barrier twice
    }
    return step.kind != foreign::Kind::move || move(step);
  }

  bool move(const Step& step) {
    Cells sum(static_cast<std::size_t>(step.count));
    for (const Place& from : step.from) {
      for (int unit = 0; from.waits_for_packets && unit < step.count; ++unit) {
        if (!flags_.contains({from.rank, from.cell + unit})) return false;
      }
    }
    if (step.receives != kNone && step.count > 0) {
      auto& arrived = messages_[static_cast<std::size_t>(step.receives)];
      if (arrived.empty()) return false;
      add(sum, arrived.front());
      arrived.pop_front();
    }
    for (const Place& from : step.from) add(sum, memory.read(from, step.count));
    for (const Place& to : step.to) {
      memory.write(to, sum);
      for (int unit = 0; to.buffer == Buffer::packets && unit < step.count; ++unit)
        flags_.insert({to.rank, to.cell + unit});
    }
    if (step.sends != kNone && step.count > 0) messages_[static_cast<std::size_t>(step.sends)].push_back(sum);
    return true;
  }

  const foreign::Plan& plan_;
  std::vector<std::size_t> done_;  // by block
  std::vector<int> counters_;
  std::vector<std::deque<Cells>> messages_;
  std::vector<std::set<StepAt>> met_;
  std::set<std::pair<int, int>> flags_;  // by rank and cell
};

/// Runs GOAL.
class GoalNumbers : public GoalListener {
 public:
  GoalNumbers(const std::vector<GoalRank>& goal, const foreign::Plan& plan) : memory(plan), lines_(goal, plan) {
    for (const GoalRank& rank : goal) messages_.emplace_back(rank.size());
  }

  void started(const GoalOpAt& line) override {
    const auto& [does, step, place] = lines_.line(line);
    if (does == Does::answer) messages(line) = memory.read(*place, step->count);
    if (does == Does::send || does == Does::put) messages(line) = made(line.first, *step);
    if (does != Does::compute) return;
    const StepLines& lines = lines_.of(step);
    Cells sum(static_cast<std::size_t>(step->count));
    for (const Place& from : step->from) {
      if (from.rank == static_cast<int>(line.first)) add(sum, memory.read(from, step->count));
    }
    for (const std::size_t answer : lines.answers) add(sum, messages_[line.first][answer]);
    if (lines.receive) add(sum, messages_[line.first][*lines.receive]);
    write(*step, line.first, sum);
    messages(line) = sum;
  }

  void received(const GoalOpAt& send, const GoalOpAt& recv) override {
    const auto& [does, step, place] = lines_.line(recv);
    messages(recv) = messages(send);
    if (does == Does::take_data) memory.write(*place, messages(send));
    const bool is_last = does == Does::receive || does == Does::get_answer;
    if (is_last && !lines_.of(step).compute) write(*step, recv.first, messages(send));
  }

  Numbers memory;

 private:
  Cells& messages(const GoalOpAt& line) { return messages_[line.first][line.second]; }

  /// What a step sends.
  Cells made(std::size_t rank, const Step& step) {
    const StepLines& lines = lines_.of(&step);
    if (lines.compute) return messages_[rank][*lines.compute];
    if (lines.receive) return messages_[rank][*lines.receive];
    return lines.answers.empty() ? memory.read(step.from[0], step.count) : messages_[rank][lines.answers[0]];
  }
  /// Writes what a step has made into its own rank's memory.
  void write(const Step& step, std::size_t rank, const Cells& cells) {
    for (const Place& place : step.to) {
      if (place.rank == static_cast<int>(rank)) memory.write(place, cells);
    }
  }

  PlanLines lines_;
  std::vector<std::vector<Cells>> messages_;  // by rank and line: what it has sent, received or computed
};

/// Looks at the outputs, if they are all sums or all parts.
std::string problem_of_output(Numbers& memory, const foreign::Plan& plan) {
  Numbers begin(plan);
  const foreign::Sizes sizes = sizes_of(plan.collective, plan.ranks, plan.data_chunks);
  const int part = sizes.input * plan.slices;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    for (int i = 0; i < sizes.output * plan.slices; ++i) {
      std::uint64_t should = 0;
      if (plan.collective == Collective::all_gather) should = begin.at({i / part, Buffer::input, i % part}, 0);
      for (int from = 0; plan.collective == Collective::all_reduce && from < plan.ranks; ++from)
        should += begin.at({from, Buffer::input, i}, 0);
      if (memory.at({rank, Buffer::output, i}, 0) != should) return fmt::format("rank {}: cell {} is wrong", rank, i);
    }
  }
  return "";
}

}  // namespace

std::string problem_of_result(const std::vector<GoalRank>& goal, const foreign::Plan& plan, Ends ends, unsigned seed,
                              std::optional<GoalOpAt> last) {
  GoalNumbers numbers(goal, plan);
  const GoalRun run = run_goal(goal, ends, seed, numbers, std::move(last));
  if (!run.fault.empty()) return run.fault;
  const std::string problem = problem_of_output(numbers.memory, plan);
  if (!problem.empty()) return problem;
  PlanRun own(plan);
  return numbers.memory.is_equal(own.memory) ? "" : "memory differs from that of the plan's own run";
}

}  // namespace traces_test
