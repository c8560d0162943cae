// What is wrong with a plan, for people.
#include "foreign/run.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace param_sync::foreign {
namespace {

Place plus(Place place, int cells) {
  place.cell += cells;
  return place;
}

}  // namespace

std::string Run::name(const Access& access) const {
  const Lane& lane = lanes_[static_cast<std::size_t>(access.lane)];
  if (access.step == nullptr) return fmt::format("the caller of rank {}", lane.rank);
  if (lane.block != nullptr) return location(plan_, *lane.block, *access.step);
  return fmt::format("the proxy of rank {}, for {} {} ({})", lane.rank, plan_.steps_called, access.step->index,
                     access.step->name);
}

void Run::refuse_race(const Lane& lane, const Step* step, const Place& place, int unit, const char* does,
                      const Access& other, const char* other_does) const {
  const Access self{number(lane), 0, step, unit};
  std::string why = "nothing orders the two";
  if (other.lane == self.lane) why = "the block's threads do not meet between the two";
  if (other.lane == self.lane && other.step == step) why = "both are the same step";
  throw Refuted(fmt::format("race: {} {} {}, and {} {} it; {}", name(self), does, name_of(plan_, plus(place, unit)),
                            name(other), other_does, why));
}

/// What a lane waits for, for people.
std::string Run::wish(const Lane& lane) const {
  const Step& step = step_of(lane);
  const auto connection = [this](int number) -> const Connection& {
    return plan_.connections[static_cast<std::size_t>(number)];
  };
  switch (step.kind) {
    case Kind::move:
      break;
    case Kind::await: {
      const Block& other = plan_.blocks[static_cast<std::size_t>(step.awaited_block)];
      const Step& awaited = other.steps[static_cast<std::size_t>(step.awaited_step)];
      return fmt::format("thread block {} to do {} {}", other.id, plan_.steps_called, awaited.index);
    }
    case Kind::signal:
    case Kind::sync:
      return "nothing";
    case Kind::wait:
      return plan_.counters[static_cast<std::size_t>(step.counter)].name;
    case Kind::barrier:
      return plan_.barriers[static_cast<std::size_t>(step.barrier)].name;
    case Kind::flush:
      return "its proxy";
  }
  if (lane.is_holding) {
    const Connection& out = connection(step.sends);
    return fmt::format("room on channel {} to rank {}", out.channel, out.to);
  }
  for (const Place& place : step.from) {
    const bool is_missing = place.waits_for_packets && memory_.at(place, lane.unit, lane.call).call != lane.call;
    if (is_missing) return fmt::format("the flags of {}", name_of(plan_, plus(place, lane.unit)));
  }
  const Connection& in = connection(step.receives);
  return fmt::format("a message of rank {} on channel {}", in.from, in.channel);
}

/// The lane that would have to go on first; kNone if that is not one lane.
int Run::obstacle(const Lane& lane) const {
  const Step& step = step_of(lane);
  if (step.kind == Kind::await) return step.awaited_block;
  if (step.kind != Kind::move) return kNone;
  if (lane.is_holding) return channels_[static_cast<std::size_t>(step.sends)].receiver;
  if (step.receives != kNone) return channels_[static_cast<std::size_t>(step.receives)].sender;
  return kNone;
}

void Run::refuse_hang() const {
  constexpr std::size_t kNamedMax = 6;
  std::vector<int> stuck;
  for (const Lane& lane : lanes_) {
    if (lane.block != nullptr && lane.step < lane.block->steps.size()) stuck.push_back(number(lane));
  }
  std::vector<int> named;  // a chain in which each waits for the next one, if there is one
  for (int next = stuck.front(); next != kNone && named.size() < kNamedMax;
       next = obstacle(lanes_[static_cast<std::size_t>(next)])) {
    const Lane& lane = lanes_[static_cast<std::size_t>(next)];
    if (lane.step == lane.block->steps.size() || std::find(named.begin(), named.end(), next) != named.end()) break;
    named.push_back(next);
  }
  std::string text = "deadlock: ";
  for (const int number : named) {
    const Lane& lane = lanes_[static_cast<std::size_t>(number)];
    text += fmt::format("{}{} waits for {}", number == named.front() ? "" : "; ",
                        location(plan_, *lane.block, step_of(lane)), wish(lane));
  }
  if (stuck.size() > named.size()) text += fmt::format("; {} more thread blocks wait", stuck.size() - named.size());
  throw Hang(text);
}

}  // namespace param_sync::foreign
