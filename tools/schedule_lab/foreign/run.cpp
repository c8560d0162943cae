#include "foreign/run.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace param_sync::foreign {
namespace {

constexpr std::uint64_t kClockBytesMax = std::uint64_t{1} << 30;
constexpr std::uint64_t kAccessesMax = std::uint64_t{1} << 25;
constexpr std::uint64_t kWorkMax = std::uint64_t{1} << 31;  // words that are read and written: some seconds

/// Throws Error if a run takes more memory or time than we give it.
void require_affordable(const Plan& plan, int calls) {
  const std::uint64_t lanes = plan.blocks.size() + plan.queues.size() + static_cast<std::uint64_t>(plan.ranks);
  std::uint64_t kept = 4 * lanes;  // clocks
  std::uint64_t work = 0;          // clocks that are copied or joined
  std::uint64_t accesses = 0;
  for (const Block& block : plan.blocks) {
    work += 4;
    for (const Step& step : block.steps) {
      const auto count = static_cast<std::uint64_t>(step.count);
      const bool shares = step.receives != kNone || step.sends != kNone;
      std::uint64_t packets = 0;
      for (const Place& place : step.to) packets += place.buffer == Buffer::packets ? count : 0;
      kept += step.kind == Kind::move ? packets + (step.sends != kNone ? count : 0) : 2;
      accesses += count * (step.from.size() + step.to.size() + (shares ? 1 : 0));
      work += step.kind != Kind::move ? 3 : 1 + (shares ? 2 * count : 0) + packets;
      for (const Place& place : step.from) work += place.waits_for_packets ? count : 0;
    }
  }
  if (kept * lanes * sizeof(std::uint32_t) > kClockBytesMax) {
    throw Error(
        fmt::format("its {} thread blocks need more than {} MiB of clocks", plan.blocks.size(), kClockBytesMax >> 20));
  }
  if (accesses > kAccessesMax || (work + accesses) * lanes * static_cast<std::uint64_t>(calls) > kWorkMax) {
    throw Error(fmt::format("its {} thread blocks have too many steps to be proved", plan.blocks.size()));
  }
}

bool uses_packets(const Step& step) {
  const auto is_packet = [](const Place& place) { return place.buffer == Buffer::packets; };
  return std::any_of(step.from.begin(), step.from.end(), is_packet) ||
         std::any_of(step.to.begin(), step.to.end(), is_packet);
}

}  // namespace

Run::Run(const Plan& plan, const Conditions& conditions)
    : plan_(plan),
      conditions_((require_affordable(plan, conditions.calls), conditions)),
      memory_(plan, conditions.in_place),
      channels_(plan.connections.size()),
      barriers_(plan.barriers.size()),
      running_(static_cast<std::size_t>(plan.ranks)) {
  lanes_.resize(plan.blocks.size() + plan.queues.size() + static_cast<std::size_t>(plan.ranks));
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    const std::size_t queue = i - plan.blocks.size();
    if (i < plan.blocks.size()) {
      lane.block = &plan.blocks[i];
      lane.rank = lane.block->rank;
      ++running_[static_cast<std::size_t>(lane.rank)];
    } else {
      lane.rank = queue < plan.queues.size() ? plan.queues[queue] : static_cast<int>(queue - plan.queues.size());
    }
    for (Clock* clock : {&lane.clock, &lane.acquired, &lane.released, &lane.begun}) clock->resize(lanes_.size());
  }
  for (std::size_t i = 0; i < plan.blocks.size(); ++i) {
    for (const Step& step : plan.blocks[i].steps) {
      if (step.sends != kNone) channels_[static_cast<std::size_t>(step.sends)].sender = static_cast<int>(i);
      if (step.receives != kNone) channels_[static_cast<std::size_t>(step.receives)].receiver = static_cast<int>(i);
      if (step.kind == Kind::await) {
        lanes_[static_cast<std::size_t>(step.awaited_block)].awaited[step.awaited_step] = {};
      }
    }
  }
  for (const Counter& counter : plan.counters) {
    CounterState state;
    state.value = state.unclaimed = counter.initial;
    counters_.push_back(std::move(state));
  }
  const Sizes sizes = sizes_of(plan.collective, plan.ranks, plan.data_chunks);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    for (int cell = 0; cell < sizes.input * plan.slices; ++cell) {
      memory_.at({rank, Buffer::input}, cell, 0).value = contents_.part({rank, cell});
    }
  }
}

const Step& Run::step_of(const Lane& lane) const {
  return lane.block != nullptr ? lane.block->steps[lane.step] : *lane.queued.front().step;
}

void Run::wake(std::vector<int>& waiting) {
  ready_.insert(ready_.end(), waiting.begin(), waiting.end());
  waiting.clear();
}

bool Run::is_before(const Lane& lane, const Step* step, int unit, const Access& access) const {
  if (access.lane == kNone) return true;
  if (access.lane != number(lane)) return lane.clock[static_cast<std::size_t>(access.lane)] >= access.epoch;
  const auto self = static_cast<std::size_t>(access.lane);
  const bool is_of_block = lane.block != nullptr && step != nullptr && access.step != nullptr;
  if (!is_of_block || access.epoch <= lane.released[self]) return true;
  // The threads have not met since then. Each thread does its own words, which are the same ones in both steps only if
  // the cell has the same number in both, and words have the same size.
  return access.unit == unit && uses_packets(*access.step) == uses_packets(*step);
}

Contents::Id Run::read(Lane& lane, const Step* step, const Place& place, int unit) {
  Cell& cell = memory_.at(place, unit, lane.call);
  if (!is_before(lane, step, unit, cell.write)) refuse_race(lane, step, place, unit, "reads", cell.write, "writes");
  const Access access{number(lane), own(lane) + 1, step, unit};
  ++cells_;
  for (Access& earlier : cell.reads) {
    if (earlier.lane != access.lane) continue;
    earlier = access;
    return cell.value;
  }
  cell.reads.push_back(access);
  return cell.value;
}

void Run::write(Lane& lane, const Step* step, const Place& place, int unit, Contents::Id value) {
  Cell& cell = memory_.at(place, unit, lane.call);
  const bool is_known = is_before(lane, step, unit, cell.write);
  if (is_known && place.buffer == Buffer::packets && cell.call == lane.call && cell.value == value) {
    read(lane, step, place, unit);  // the same packet once more: readers see no difference, but later writes race with
                                    // it
    return;
  }
  if (!is_known) refuse_race(lane, step, place, unit, "writes", cell.write, "writes");
  for (const Access& earlier : cell.reads) {
    if (!is_before(lane, step, unit, earlier)) refuse_race(lane, step, place, unit, "writes", earlier, "reads");
  }
  cell.reads.clear();
  cell.write = {number(lane), own(lane) + 1, step, unit};
  cell.value = value;
  ++cells_;
  if (place.buffer != Buffer::packets || cell.call == lane.call) return;
  cell.call = lane.call;
  Clock clock = lane.clock;
  ++clock[static_cast<std::size_t>(number(lane))];
  cell.written = std::make_shared<const Clock>(std::move(clock));
  const auto waiting = waiting_for_packets_.find(memory_.index(place, unit, lane.call));
  if (waiting != waiting_for_packets_.end()) wake(waiting->second);
}

/// Waits for the flags of one cell's packets.
bool Run::take_packets(Lane& lane, const Step& step) {
  for (const Place& place : step.from) {
    if (!place.waits_for_packets) continue;
    const Cell& cell = memory_.at(place, lane.unit, lane.call);
    if (cell.call == lane.call) continue;
    waiting_for_packets_[memory_.index(place, lane.unit, lane.call)].push_back(number(lane));
    return false;
  }
  for (const Place& place : step.from) {
    if (place.waits_for_packets) join(lane.clock, *memory_.at(place, lane.unit, lane.call).written);
  }
  return true;
}

bool Run::receive(Lane& lane, const Step& step, Contents::Id& value) {
  Channel& channel = channels_[static_cast<std::size_t>(step.receives)];
  if (channel.messages.empty()) {
    channel.waiting.push_back(number(lane));
    return false;
  }
  const Message& message = channel.messages.front();
  if (message.unit != lane.unit || message.step->count != step.count) {
    throw Refuted(fmt::format("{} receives {} chunks, but the message that comes is of {}, which sends {}",
                              location(plan_, *lane.block, step), step.count, name({message.lane, 0, message.step, 0}),
                              message.step->count));
  }
  join(lane.clock, message.clock);
  value = message.value;
  if (message.is_last) --channel.pieces;
  channel.messages.pop_front();
  wake(channel.waiting);
  return true;
}

bool Run::move(Lane& lane, const Step& step) {
  for (; lane.unit < step.count; ++lane.unit) {
    if (!lane.is_holding) {
      if (!take_packets(lane, step)) return false;
      Contents::Id value = Contents::kNothing;
      if (step.receives != kNone && !receive(lane, step, value)) return false;
      bool is_first = step.receives == kNone;
      for (const Place& place : step.from) {
        const Contents::Id term = read(lane, &step, place, lane.unit);
        value = is_first ? term : contents_.sum(value, term);
        is_first = false;
      }
      for (const Place& place : step.to) write(lane, &step, place, lane.unit, value);
      lane.held = value;
    }
    lane.is_holding = step.sends != kNone;
    if (lane.is_holding) {
      Channel& channel = channels_[static_cast<std::size_t>(step.sends)];
      const bool is_first = lane.unit % conditions_.piece == 0;  // of a piece
      if (is_first && channel.pieces >= plan_.slots) {
        channel.waiting.push_back(number(lane));
        return false;
      }
      channel.pieces += is_first ? 1 : 0;
      const bool is_last = (lane.unit + 1) % conditions_.piece == 0 || lane.unit + 1 == step.count;
      Message message{lane.held, lane.clock, &step, number(lane), lane.unit, is_last};
      ++message.clock[static_cast<std::size_t>(number(lane))];
      channel.messages.push_back(std::move(message));
      lane.is_holding = false;
      wake(channel.waiting);
    }
    ++own(lane);
  }
  return true;
}

/// Puts a step into a queue. What the block's threads have done since they last met may not be done when it runs.
void Run::submit(Lane& lane, const Step& step) {
  Lane& queue = lanes_[plan_.blocks.size() + static_cast<std::size_t>(step.queue)];
  queue.queued.push_back({&step, lane.released, lane.call});
  ready_.push_back(number(queue));
}

void Run::signal(Lane& lane, const Step& step) {
  CounterState& counter = counters_[static_cast<std::size_t>(step.counter)];
  const Access access{number(lane), own(lane) + 1, &step, 0};
  if (counter.signaller.lane != kNone && counter.signaller.lane != access.lane &&
      lane.clock[static_cast<std::size_t>(counter.signaller.lane)] < counter.signaller.epoch) {
    throw Error(fmt::format("{} and {} signal {} in no fixed order: we cannot say which wait sees which",
                            name(counter.signaller), name(access),
                            plan_.counters[static_cast<std::size_t>(step.counter)].name));
  }
  counter.signaller = access;
  ++counter.value;
  const Clock& known = lane.block != nullptr ? lane.released : lane.clock;
  counter.tokens.push_back({known, lane.begun, step.relaxed});
  ++own(lane);
  wake(counter.waiting);
}

bool Run::wait(Lane& lane, const Step& step) {
  CounterState& counter = counters_[static_cast<std::size_t>(step.counter)];
  if (counter.value == 0) {
    counter.waiting.push_back(number(lane));
    return false;
  }
  const Access access{number(lane), own(lane) + 1, &step, 0};
  if (counter.waiter.lane != kNone && counter.waiter.lane != access.lane &&
      lane.clock[static_cast<std::size_t>(counter.waiter.lane)] < counter.waiter.epoch) {
    throw Error(fmt::format("{} and {} wait for {} in no fixed order: we cannot say which one sees which signal",
                            name(counter.waiter), name(access),
                            plan_.counters[static_cast<std::size_t>(step.counter)].name));
  }
  counter.waiter = access;
  --counter.value;
  ++own(lane);
  if (counter.unclaimed > 0) {
    --counter.unclaimed;
    return true;
  }
  const Token& token = counter.tokens.front();
  const bool orders = conditions_.relaxed_signals_order || (!token.relaxed && !step.relaxed);
  join(lane.acquired, orders ? token.clock : token.begun);
  counter.tokens.pop_front();
  return true;
}

void Run::sync(Lane& lane) {
  join(lane.clock, lane.acquired);
  lane.released = lane.clock;
}

bool Run::meet(Lane& lane, const Step& step) {
  BarrierState& barrier = barriers_[static_cast<std::size_t>(step.barrier)];
  if (lane.generation == kNone) {
    sync(lane);
    lane.generation = barrier.generation;
    barrier.arrived.push_back(number(lane));
    const auto blocks = static_cast<std::size_t>(plan_.barriers[static_cast<std::size_t>(step.barrier)].blocks);
    if (barrier.arrived.size() == blocks) {
      barrier.clock = lane.clock;
      for (const int other : barrier.arrived) join(barrier.clock, lanes_[static_cast<std::size_t>(other)].clock);
      ++barrier.generation;
      wake(barrier.arrived);
    }
  }
  if (lane.generation == barrier.generation) return false;
  lane.generation = kNone;
  join(lane.clock, barrier.clock);
  lane.released = lane.clock;
  return true;
}

bool Run::await(Lane& lane, const Step& step) {
  Lane& other = lanes_[static_cast<std::size_t>(step.awaited_block)];
  if (other.call == lane.call && other.step <= static_cast<std::size_t>(step.awaited_step)) {
    other.waiting.push_back(number(lane));
    return false;
  }
  join(lane.clock, other.awaited.at(step.awaited_step));
  return true;
}

/// Does a step, or as much of it as it can. False if it has to wait.
bool Run::do_step(Lane& lane, const Step& step) {
  const bool is_queued = step.queue != kNone && step.kind != Kind::flush && lane.block != nullptr;
  if (is_queued) {
    submit(lane, step);
    return true;
  }
  switch (step.kind) {
    case Kind::move:
      return move(lane, step);
    case Kind::await:
      return await(lane, step);
    case Kind::signal:
      signal(lane, step);
      return true;
    case Kind::wait:
      return wait(lane, step);
    case Kind::barrier:
      return meet(lane, step);
    case Kind::sync:
      sync(lane);
      return true;
    case Kind::flush:
      break;
  }
  Lane& queue = lanes_[plan_.blocks.size() + static_cast<std::size_t>(step.queue)];
  if (!queue.queued.empty()) {
    queue.waiting.push_back(number(lane));
    return false;
  }
  join(lane.acquired, queue.clock);
  return true;
}

void Run::end_step(Lane& lane) {
  lane.unit = 0;
  ++steps_;
  if (lane.block == nullptr) {
    lane.queued.pop_front();
    if (lane.queued.empty()) wake(lane.waiting);
    return;
  }
  if (plan_.syncs_itself) sync(lane);
  const auto awaited = lane.awaited.find(static_cast<int>(lane.step));
  if (awaited != lane.awaited.end()) awaited->second = lane.clock;
  ++lane.step;
  wake(lane.waiting);
}

/// The caller of a rank reads the output when all blocks of the rank have ended. Then, if there is one more call, it
/// writes the input, and calls.
void Run::end_call(int rank) {
  Lane& caller = lanes_[plan_.blocks.size() + plan_.queues.size() + static_cast<std::size_t>(rank)];
  for (const Lane& lane : lanes_) {
    if (lane.block == nullptr || lane.rank != rank) continue;
    join(caller.clock, lane.clock);
    join(caller.clock, lane.acquired);
  }
  const Sizes sizes = sizes_of(plan_.collective, plan_.ranks, plan_.data_chunks);
  const bool has_result = plan_.collective != Collective::reduce || rank == plan_.root;
  for (int cell = 0; has_result && cell < sizes.output * plan_.slices; ++cell) {
    read(caller, nullptr, {rank, Buffer::output}, cell);
  }
  ++own(caller);
  if (caller.call + 1 == conditions_.calls) return;
  for (int cell = 0; cell < sizes.input * plan_.slices; ++cell) {
    write(caller, nullptr, {rank, Buffer::input}, cell, contents_.part({rank, cell}));
  }
  ++own(caller);
  ++caller.call;
  for (Lane& lane : lanes_) {
    if (lane.block == nullptr || lane.rank != rank) continue;
    const std::uint32_t epoch = own(lane);
    lane.clock = caller.clock;
    own(lane) = epoch;
    lane.acquired = lane.released = lane.begun = lane.clock;
    lane.step = 0;
    lane.call = caller.call;
    ++running_[static_cast<std::size_t>(rank)];
    ready_.push_back(number(lane));
  }
}

void Run::advance(Lane& lane) {
  if (lane.block == nullptr) {
    while (!lane.queued.empty()) {
      join(lane.clock, lane.queued.front().clock);
      lane.call = lane.queued.front().call;
      const Step& step = *lane.queued.front().step;
      if (!do_step(lane, step)) return;
      end_step(lane);
    }
    return;
  }
  if (lane.step == lane.block->steps.size() && !lane.block->steps.empty()) return;  // woken, though it has ended
  while (lane.step < lane.block->steps.size()) {
    const Step& step = lane.block->steps[lane.step];
    if (!do_step(lane, step)) return;
    end_step(lane);
  }
  if (--running_[static_cast<std::size_t>(lane.rank)] == 0) end_call(lane.rank);
}

/// Checks what is left when all blocks have ended.
void Run::check_end() {
  for (std::size_t i = 0; i < channels_.size(); ++i) {
    if (channels_[i].messages.empty()) continue;
    const Message& message = channels_[i].messages.front();
    throw Refuted(fmt::format("no step of rank {} receives the message of {}", plan_.connections[i].to,
                              name({message.lane, 0, message.step, 0})));
  }
  const Sizes sizes = sizes_of(plan_.collective, plan_.ranks, plan_.data_chunks);
  std::vector<Contents::Id> sums(static_cast<std::size_t>(sizes.output * plan_.slices));  // that all ranks should have
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    for (int cell = 0; cell < sizes.output * plan_.slices; ++cell) {
      const Place place{rank, Buffer::output, cell};
      const Cell& left = memory_.at(place, 0, 0);
      Contents::Id& sum = sums[static_cast<std::size_t>(cell)];
      const bool is_known = plan_.collective == Collective::all_reduce && rank > 0;
      const Contents::Id should = is_known ? sum : expected(plan_, contents_, rank, cell);
      sum = should;
      if (should == Contents::kNothing) continue;
      const std::string problem = contents_.difference(left.value, should, plan_.slices);
      if (problem.empty()) continue;
      const std::string by = left.write.lane == kNone ? "no step wrote it"
                                                      : fmt::format("written last by {}", name(left.write));
      throw Refuted(fmt::format("result: {} {} ({})", name_of(plan_, place), problem, by));
    }
  }
  for (std::size_t i = 0; i < counters_.size(); ++i) {
    if (counters_[i].value == plan_.counters[i].initial) continue;
    const std::string by = counters_[i].signaller.lane == kNone ? ""
                                                                : ", signalled last by " + name(counters_[i].signaller);
    throw Refuted(fmt::format("{} is {} at the end, not {} as before{}", plan_.counters[i].name, counters_[i].value,
                              plan_.counters[i].initial, by));
  }
}

void Run::run() {
  for (int i = static_cast<int>(plan_.blocks.size()); i-- > 0;) ready_.push_back(i);
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    if (running_[static_cast<std::size_t>(rank)] > 0) continue;
    for (int call = 0; call < conditions_.calls; ++call) end_call(rank);  // it has no blocks
  }
  while (!ready_.empty()) {
    Lane& lane = lanes_[static_cast<std::size_t>(ready_.back())];
    ready_.pop_back();
    advance(lane);
  }
  for (const int blocks : running_) {
    if (blocks > 0) refuse_hang();
  }
  check_end();
}

}  // namespace param_sync::foreign
