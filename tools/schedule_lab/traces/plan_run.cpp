#include "traces/plan_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace param_sync::traces {

using foreign::kNone;
using foreign::Place;
using foreign::Step;

namespace {

constexpr std::size_t kWaitsMax = 64;  // of a lane's next task

}  // namespace

PlanRun::PlanRun(const foreign::Plan& plan, std::uint64_t cell_bytes, const Load& load)
    : plan_(plan),
      cell_bytes_(cell_bytes),
      load_(load),
      lists_(plan.ranks),
      channels_(plan.connections.size()),
      barriers_(plan.barriers.size()),
      memory_(plan, plan.runs_in_place) {
  for (const foreign::Counter& counter : plan.counters) {
    counters_.emplace_back();
    counters_.back().unclaimed = counter.initial;
  }
  make_lanes();
  for (Lane& lane : lanes_) lane.now.known.resize(arrivals_.size());
  for (Barrier& barrier : barriers_) barrier.arriving.known.resize(arrivals_.size());
}

/// Returns the lane's number as a writer. The lane becomes one if the step writes into another rank's memory.
int PlanRun::writer_of(const Step& step, int rank, int writer) {
  const auto is_remote = [rank](const Place& place) { return place.rank != rank; };
  if (writer != kNone || std::none_of(step.to.begin(), step.to.end(), is_remote)) return writer;
  arrivals_.emplace_back();
  return static_cast<int>(arrivals_.size()) - 1;
}

void PlanRun::make_lanes() {
  lanes_.resize(plan_.blocks.size() + plan_.queues.size());
  first_beside_.resize(static_cast<std::size_t>(plan_.ranks));
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    lane.block = i < plan_.blocks.size() ? &plan_.blocks[i] : nullptr;
    lane.rank = lane.block != nullptr ? lane.block->rank : plan_.queues[i - plan_.blocks.size()];
    lane.number = first_beside_[static_cast<std::size_t>(lane.rank)]++;
  }
  for (std::size_t i = 0; i < plan_.blocks.size(); ++i) {
    for (const Step& step : plan_.blocks[i].steps) {
      Lane& lane = lanes_[i];
      Lane& does = step.queue != kNone && step.kind != foreign::Kind::flush ? queue(step.queue) : lane;
      does.writer = writer_of(step, lane.rank, does.writer);
      if (step.kind == foreign::Kind::wait) counters_[static_cast<std::size_t>(step.counter)].rank = lane.rank;
      if (step.kind == foreign::Kind::await)
        lanes_[static_cast<std::size_t>(step.awaited_block)].awaited[step.awaited_step] = {};
    }
  }
}

TaskRef PlanRun::send(Lane& lane, int to, std::uint64_t tag, std::uint64_t bytes, Waits waits) {
  TaskRef sent = lists_.add(lane.rank, {Kind::send, lane.number, to, tag, bytes, 0, {}}, std::move(waits));
  if (lane.block == nullptr) lane.sends.push_back(sent);
  sent.on_start = true;
  return sent;
}

TaskRef PlanRun::compute(int rank, int lane, std::uint64_t bytes, Waits waits) {
  return lists_.add(rank, {Kind::compute, lane, schedule::kNobody, 0, 0, load_.compute_ns(bytes), {}},
                    std::move(waits));
}

void PlanRun::join_local(State& state, const State& other) const {
  join(state.waits, other.waits);
  for (std::size_t i = 0; i < other.known.size(); ++i) state.known[i] = std::max(state.known[i], other.known[i]);
}

Waits PlanRun::learn(Known& known, int rank, const Known& others) const {
  Waits waits;
  for (std::size_t writer = 0; writer < others.size(); ++writer) {
    for (; known[writer] < others[writer]; ++known[writer]) {
      const Arrival& arrival = arrivals_[writer][known[writer]];
      if (arrival.rank == rank) waits.push_back(arrival.end);
    }
  }
  return waits;
}

void PlanRun::bound(Lane& lane) {
  if (lane.now.waits.size() <= kWaitsMax) return;
  lane.now.waits = {compute(lane.rank, lane.number, 0, lane.now.waits)};
}

void PlanRun::signal(Lane& lane, const Step& step) {
  Counter& counter = counters_[static_cast<std::size_t>(step.counter)];
  Token token{lane.now, counter.rank != lane.rank, step.relaxed};
  if (token.is_remote) {
    const std::uint64_t tag = next_tag(lane.rank, counter.rank);
    lane.now.waits = {send(lane, counter.rank, tag, 0, lane.now.waits)};
    const int beside = lane_beside(counter.rank, lane.rank);
    token.state.waits = {lists_.add(counter.rank, {Kind::recv, beside, lane.rank, tag, 0, 0, {}}, {})};
  }
  counter.tokens.push_back(std::move(token));
}

bool PlanRun::wait(Lane& lane, const Step& step) {
  Counter& counter = counters_[static_cast<std::size_t>(step.counter)];
  if (counter.unclaimed > 0) {
    --counter.unclaimed;
    return true;
  }
  if (counter.tokens.empty()) return false;
  const Token& token = counter.tokens.front();
  const bool orders = !token.relaxed && !step.relaxed;
  join(lane.now.waits, token.state.waits);
  if (orders && token.is_remote) join(lane.now.waits, learn(lane.now.known, lane.rank, token.state.known));
  if (orders && !token.is_remote) join_local(lane.now, token.state);
  counter.tokens.pop_front();
  return true;
}

/// Blocks that meet wait for one task of no time, which waits for all of them.
bool PlanRun::meet(Lane& lane, const Step& step) {
  Barrier& barrier = barriers_[static_cast<std::size_t>(step.barrier)];
  const int blocks = plan_.barriers[static_cast<std::size_t>(step.barrier)].blocks;
  if (blocks == 1) return true;
  if (lane.generation == kNone) {
    lane.generation = barrier.generation;
    join_local(barrier.arriving, lane.now);
    if (++barrier.arrived == blocks) {
      const int beside = lane_beside(lane.rank, plan_.ranks);
      barrier.met = {{compute(lane.rank, beside, 0, std::move(barrier.arriving.waits))}, barrier.arriving.known};
      barrier.arriving.waits.clear();
      barrier.arrived = 0;
      ++barrier.generation;
    }
  }
  if (lane.generation == barrier.generation) return false;
  lane.generation = kNone;
  lane.now.waits.clear();
  join_local(lane.now, barrier.met);
  return true;
}

bool PlanRun::await(Lane& lane, const Step& step) {
  const Lane& other = lanes_[static_cast<std::size_t>(step.awaited_block)];
  if (other.step <= static_cast<std::size_t>(step.awaited_step)) return false;
  join_local(lane.now, other.awaited.at(step.awaited_step));
  return true;
}

/// Waits for the ends of the queue's sends: then their data have left, and may change.
bool PlanRun::flush(Lane& lane, const Step& step) {
  Lane& flushed = queue(step.queue);
  if (!flushed.queued.empty()) return false;
  std::size_t& done = lane.flushed[step.queue];
  Waits sends(flushed.sends.begin() + static_cast<std::ptrdiff_t>(done), flushed.sends.end());
  done = flushed.sends.size();
  join_local(lane.now, flushed.now);
  join(lane.now.waits, sends);
  return true;
}

/// Does a step. False if it has to wait.
bool PlanRun::do_step(Lane& lane, const Step& step) {
  if (lane.block != nullptr && step.queue != kNone && step.kind != foreign::Kind::flush) {
    queue(step.queue).queued.push_back({&step, lane.now});
    return true;
  }
  switch (step.kind) {
    case foreign::Kind::move:
      return move(lane, step);
    case foreign::Kind::await:
      return await(lane, step);
    case foreign::Kind::signal:
      signal(lane, step);
      return true;
    case foreign::Kind::wait:
      return wait(lane, step);
    case foreign::Kind::barrier:
      return meet(lane, step);
    case foreign::Kind::flush:
      return flush(lane, step);
    case foreign::Kind::sync:
      break;  // of one block's threads
  }
  return true;
}

/// Does what the lane can do. True if it did something.
bool PlanRun::advance(Lane& lane) {
  bool moved = false;
  while (lane.block == nullptr && !lane.queued.empty()) {
    join_local(lane.now, lane.queued.front().state);
    if (!do_step(lane, *lane.queued.front().step)) return moved;
    bound(lane);
    lane.queued.pop_front();
    moved = true;
  }
  while (lane.block != nullptr && lane.step < lane.block->steps.size()) {
    if (!do_step(lane, lane.block->steps[lane.step])) return moved;
    bound(lane);
    const auto awaited = lane.awaited.find(static_cast<int>(lane.step));
    if (awaited != lane.awaited.end()) awaited->second = lane.now;
    ++lane.step;
    moved = true;
  }
  return moved;
}

std::vector<Tasks> PlanRun::run() {
  for (bool moved = true; moved;) {
    moved = false;
    for (Lane& lane : lanes_) moved |= advance(lane);
  }
  for (const Lane& lane : lanes_) {
    if (lane.block == nullptr ? lane.queued.empty() : lane.step == lane.block->steps.size()) continue;
    const foreign::Block& block = lane.block == nullptr ? plan_.blocks.front() : *lane.block;
    const Step& step = lane.block == nullptr ? *lane.queued.front().step : lane.block->steps[lane.step];
    throw schedule::Error(fmt::format("{} does not end, if messages travel as a whole: a trace has no smaller ones",
                                      location(plan_, block, step)));
  }
  return lists_.finish();
}

}  // namespace param_sync::traces
