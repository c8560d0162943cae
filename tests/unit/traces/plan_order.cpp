#include "plan_checks.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace traces_test {
namespace {

using foreign::Kind;
using foreign::kNone;
using foreign::Place;
using foreign::Step;

template <class Items>
void append(Items& items, const Items& others) {
  items.insert(items.end(), others.begin(), others.end());
}

bool overlap(const Place& place, int count, const Place& other, int other_count) {
  return place.rank == other.rank && place.buffer == other.buffer && place.cell < other.cell + other_count &&
         other.cell < place.cell + count;
}

/// Calls with each step of the plan, in the order of the file.
template <class Call>
void for_each_step(const foreign::Plan& plan, Call call) {
  for (std::size_t block = 0; block < plan.blocks.size(); ++block) {
    for (std::size_t i = 0; i < plan.blocks[block].steps.size(); ++i)
      call(StepAt{block, i}, plan.blocks[block].steps[i]);
  }
}

}  // namespace

PlanOrder::PlanOrder(const std::vector<GoalRank>& goal, const foreign::Plan& plan) : plan_(plan), lines_(goal, plan) {
  for_each_step(plan, [&](const StepAt& at, const Step&) { after(at); });
  for (std::size_t queue = 0; queue < plan.queues.size(); ++queue)
    after_queued(static_cast<int>(queue), lines_.queued(static_cast<int>(queue)).size());
  for (std::size_t rank = 0; rank < goal.size(); ++rank) {
    for (std::size_t i = 0; i < goal[rank].size(); ++i) {
      if (lines_.line({rank, i}).does != Does::answer) continue;
      const auto& lines = lines_.of(lines_.line({rank, i}).step);
      const GoalOpAt got = lines_.other_end({rank, i});
      const auto number = std::find(lines.answers.begin(), lines.answers.end(), got.second) - lines.answers.begin();
      const GoalOpAt asked{got.first, lines.asks[static_cast<std::size_t>(number)]};
      require({{lines_.other_end(asked), true}}, {rank, i});
    }
  }
}

void PlanOrder::require(const Events& waited, const GoalOpAt& line) { append(needs_[line], waited); }

PlanOrder::Events PlanOrder::before(const StepAt& step) {
  return step.second == 0 ? Events{} : after({step.first, step.second - 1});
}

/// What is complete when the block goes on after the step.
PlanOrder::Events PlanOrder::after(const StepAt& at) {
  const auto known = after_.find(at);
  if (known != after_.end()) return known->second;
  const Step& step = plan_.blocks[at.first].steps[at.second];
  Events waited = before(at);
  if (step.kind == Kind::flush) {
    std::size_t count = 0;  // steps that the block has put into the queue
    for (const StepAt& queued : lines_.queued(step.queue)) count += queued < at ? 1 : 0;
    append(waited, after_queued(step.queue, count));
    for (std::size_t i = 0; i < count; ++i) {
      const auto rank = static_cast<std::size_t>(plan_.blocks[at.first].rank);
      for (const std::size_t line : lines_.of(lines_.queued(step.queue)[i]).sends)
        waited.push_back({{rank, line}, true});
    }
  } else if (step.kind == Kind::await) {
    append(waited, after({static_cast<std::size_t>(step.awaited_block), static_cast<std::size_t>(step.awaited_step)}));
  } else if (step.kind == Kind::wait) {
    append(waited, signalled(step, at));
  } else if (step.kind == Kind::barrier) {
    append(waited, met(step, at));
  } else if (step.queue == kNone) {
    waited = done(at, std::move(waited));
  }
  std::sort(waited.begin(), waited.end());
  waited.erase(std::unique(waited.begin(), waited.end()), waited.end());
  return after_[at] = waited;
}

/// What is complete when the queue has done its first `count` steps.
PlanOrder::Events PlanOrder::after_queued(int queue, std::size_t count) {
  if (count == 0) return {};
  const StepAt at = lines_.queued(queue)[count - 1];
  Events waited = after_queued(queue, count - 1);
  append(waited, before(at));
  return done(at, std::move(waited));
}

/// What is complete when a step with lines is, if `waited` is complete before it.
PlanOrder::Events PlanOrder::done(const StepAt& at, Events waited) {
  const Step& step = plan_.blocks[at.first].steps[at.second];
  const auto rank = static_cast<std::size_t>(plan_.blocks[at.first].rank);
  const StepLines& lines = lines_.of(at);
  append(waited, packets(step, rank));
  Events got;
  for (std::size_t i = 0; i < lines.asks.size(); ++i) {
    require(waited, {rank, lines.asks[i]});
    require({{{rank, lines.asks[i]}, false}}, {rank, lines.answers[i]});
    got.push_back({{rank, lines.answers[i]}, true});
  }
  if (lines.receive) {
    require(waited, {rank, *lines.receive});
    got.push_back({{rank, *lines.receive}, true});
  }
  if (!got.empty()) waited = got;
  if (lines.compute) {
    require(waited, {rank, *lines.compute});
    waited = {{{rank, *lines.compute}, true}};
  }
  Events sent;
  for (const std::size_t line : lines.sends) {
    require(waited, {rank, line});
    sent.push_back({{rank, line}, false});
  }
  return sent.empty() ? waited : sent;
}

/// The signal that a wait is for: signals and waits of a counter are in the order of the file in these plans.
PlanOrder::Events PlanOrder::signalled(const Step& wait, const StepAt& at) {
  int number = -plan_.counters[static_cast<std::size_t>(wait.counter)].initial;
  std::vector<StepAt> signals;
  for_each_step(plan_, [&](const StepAt& other, const Step& step) {
    if (step.counter != wait.counter) return;
    if (step.kind == Kind::wait && other < at) ++number;
    if (step.kind == Kind::signal) signals.push_back(other);
  });
  if (number < 0) return {};
  const StepAt signal = signals[static_cast<std::size_t>(number)];
  const StepLines& lines = lines_.of(signal);
  const auto rank = static_cast<std::size_t>(plan_.blocks[signal.first].rank);
  if (lines.sends.empty()) return before(signal);
  return {{lines_.other_end({rank, lines.sends[0]}), true}};
}

/// What is complete before all blocks that meet.
PlanOrder::Events PlanOrder::met(const Step& barrier, const StepAt& at) {
  std::map<std::size_t, int> meetings;  // by block
  int number = 0;
  std::vector<StepAt> all;
  for_each_step(plan_, [&](const StepAt& other, const Step& step) {
    if (step.kind == Kind::barrier && step.barrier == barrier.barrier && other.first == at.first && other < at)
      ++number;
  });
  Events waited;
  for_each_step(plan_, [&](const StepAt& other, const Step& step) {
    if (step.kind != Kind::barrier || step.barrier != barrier.barrier) return;
    if (meetings[other.first]++ == number) append(waited, before(other));
  });
  return waited;
}

/// The packets that a step waits for: in these plans each has one writer.
PlanOrder::Events PlanOrder::packets(const Step& step, std::size_t rank) {
  Events written;
  for (const Place& read : step.from) {
    if (!read.waits_for_packets) continue;
    for_each_step(plan_, [&](const StepAt& at, const Step& writer) {
      for (const Place& place : writer.to) {
        if (!overlap(place, writer.count, read, step.count)) continue;
        if (plan_.blocks[at.first].rank == static_cast<int>(rank)) {
          append(written, after(at));
          continue;
        }
        const auto from = static_cast<std::size_t>(plan_.blocks[at.first].rank);
        for (const std::size_t line : lines_.of(at).sends) {
          if (lines_.line({from, line}).place == &place) written.push_back({lines_.other_end({from, line}), true});
        }
      }
    });
  }
  return written;
}

/// By rank and line, what has happened when the line starts: 1: it has started, 2: it has ended, too.
std::vector<std::vector<char>> PlanOrder::past(const std::vector<GoalRank>& goal, const GoalOpAt& line) const {
  std::vector<std::vector<char>> has;
  for (const GoalRank& rank : goal) has.emplace_back(rank.size());
  std::vector<GoalOpAt> open{line};  // have started, and were not looked at
  const auto note = [&](const GoalOpAt& at, char what) {
    char& known = has[at.first][at.second];
    if (known == 0) open.push_back(at);
    if (known < 2 && what == 2 && goal[at.first][at.second].what == "recv") {
      const GoalOpAt sent = lines_.other_end(at);
      if (has[sent.first][sent.second] == 0) open.push_back(sent);
      has[sent.first][sent.second] = std::max<char>(has[sent.first][sent.second], 1);
    }
    known = std::max(known, what);
  };
  while (!open.empty()) {
    const GoalOpAt at = open.back();
    open.pop_back();
    const GoalOp& op = goal[at.first][at.second];
    for (const std::size_t before : op.started) note({at.first, before}, 1);
    for (const std::size_t before : op.ended) note({at.first, before}, 2);
  }
  return has;
}

bool PlanOrder::has_order(const std::vector<GoalRank>& goal, const GoalOpAt& line, const GoalOpAt& before,
                          bool ended) const {
  return past(goal, line)[before.first][before.second] >= (ended ? 2 : 1);
}

std::string PlanOrder::problem(const std::vector<GoalRank>& goal) const {
  for (const auto& [line, events] : needs_) {
    const auto has = past(goal, line);
    for (const Event& event : events) {
      if (has[event.line.first][event.line.second] >= (event.ended ? 2 : 1)) continue;
      return fmt::format("rank {}, line {}: does not wait for line {} of rank {}", line.first, line.second + 1,
                         event.line.second + 1, event.line.first);
    }
  }
  return "";
}

}  // namespace traces_test
