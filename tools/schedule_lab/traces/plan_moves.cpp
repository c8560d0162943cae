// What moves of a plan become: messages and computations, and the memory that they use.
#include "traces/plan_run.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace param_sync::traces {

using foreign::kNone;
using foreign::Place;
using foreign::Step;

PlanRun::Cell& PlanRun::cell(const Place& place, int unit) {
  const std::size_t index = memory_.index(place, unit, 0);
  if (cells_.size() <= index) cells_.resize(index + 1);
  return cells_[index];
}

/// The arrivals that were the last writes of cells.
Waits PlanRun::arrivals_in(const Place& place, int count) {
  Waits found;
  for (int unit = 0; unit < count; ++unit) {
    const int arrival = cell(place, unit).arrival;
    if (arrival != kNone) found.push_back(last_arrivals_[static_cast<std::size_t>(arrival)]);
  }
  Waits waits;
  join(waits, found);
  return waits;
}

/// Asks the other rank for the data. Its answer waits for no block there, as a read of its memory does not.
TaskRef PlanRun::read_remote(Lane& lane, const Place& place, int count) {
  const int own_lane = lane_beside(place.rank, lane.rank);
  const std::uint64_t bytes = cell_bytes_ * static_cast<std::uint64_t>(count);
  const std::uint64_t asked = next_tag(lane.rank, place.rank), answered = next_tag(place.rank, lane.rank);
  const TaskRef request = send(lane, place.rank, asked, 0, lane.now.waits);
  Waits waits{lists_.add(place.rank, {Kind::recv, own_lane, lane.rank, asked, 0, 0, {}}, {})};
  join(waits, arrivals_in(place, count));
  lists_.add(place.rank, {Kind::send, own_lane, lane.rank, answered, bytes, 0, {}}, std::move(waits));
  return lists_.add(lane.rank, {Kind::recv, lane.number, place.rank, answered, bytes, 0, {}}, {request});
}

/// Sends the data to the other rank's memory. If they overwrite data that came in the same way, they arrive later.
TaskRef PlanRun::write_remote(Lane& lane, const Place& place, int count, const Waits& waits) {
  const std::uint64_t bytes = cell_bytes_ * static_cast<std::uint64_t>(count);
  const std::uint64_t tag = next_tag(lane.rank, place.rank);
  const TaskRef sent = send(lane, place.rank, tag, bytes, waits);
  const TaskRef end = lists_.add(place.rank,
                                 {Kind::recv, lane_beside(place.rank, lane.rank), lane.rank, tag, bytes, 0, {}},
                                 arrivals_in(place, count));
  arrivals_[static_cast<std::size_t>(lane.writer)].push_back({place.rank, end});
  ++lane.now.known[static_cast<std::size_t>(lane.writer)];
  last_arrivals_.push_back(end);
  const bool has_flags = place.buffer == foreign::Buffer::packets;
  if (has_flags) packets_.push_back({{{end}, lane.now.known}, true});
  for (int unit = 0; unit < count; ++unit) {
    Cell& written = cell(place, unit);
    written.arrival = static_cast<int>(last_arrivals_.size()) - 1;
    if (has_flags && written.packet == kNone) written.packet = static_cast<int>(packets_.size()) - 1;
  }
  return sent;
}

/// Notes what a complete step has written into its own rank's memory.
void PlanRun::write_local(const Lane& lane, const Step& step) {
  for (const Place& place : step.to) {
    if (place.rank != lane.rank) continue;
    const bool has_flags = place.buffer == foreign::Buffer::packets;
    if (has_flags) packets_.push_back({lane.now, false});
    for (int unit = 0; unit < step.count; ++unit) {
      Cell& written = cell(place, unit);
      written.arrival = kNone;
      if (has_flags && written.packet == kNone) written.packet = static_cast<int>(packets_.size()) - 1;
    }
  }
}

/// True if the message and all packets that the step reads are there.
bool PlanRun::has_input(const Step& step) {
  if (step.receives != kNone && channels_[static_cast<std::size_t>(step.receives)].empty()) return false;
  for (const Place& place : step.from) {
    for (int unit = 0; place.waits_for_packets && unit < step.count; ++unit) {
      if (cell(place, unit).packet == kNone) return false;
    }
  }
  return true;
}

void PlanRun::take_packets(Lane& lane, const Step& step) {
  std::set<int> taken;
  for (const Place& place : step.from) {
    for (int unit = 0; place.waits_for_packets && unit < step.count; ++unit) taken.insert(cell(place, unit).packet);
  }
  for (const int number : taken) {
    const Packet& packet = packets_[static_cast<std::size_t>(number)];
    if (packet.is_remote) join(lane.now.waits, learn(lane.now.known, lane.rank, packet.state.known));
    join_local(lane.now, packet.state);
  }
}

bool PlanRun::move(Lane& lane, const Step& step) {
  if (step.count == 0) return true;
  if (!has_input(step)) return false;
  take_packets(lane, step);
  bound(lane);
  const std::uint64_t bytes = cell_bytes_ * static_cast<std::uint64_t>(step.count);
  Waits got;  // the ends of what it receives
  for (const Place& place : step.from) {
    if (place.rank != lane.rank) got.push_back(read_remote(lane, place, step.count));
  }
  if (step.receives != kNone) {
    auto& channel = channels_[static_cast<std::size_t>(step.receives)];
    const int from = plan_.connections[static_cast<std::size_t>(step.receives)].from;
    got.push_back(
        lists_.add(lane.rank, {Kind::recv, lane.number, from, channel.front().tag, bytes, 0, {}}, lane.now.waits));
    join(got, learn(lane.now.known, lane.rank, channel.front().known));
    channel.pop_front();
  }
  const std::size_t terms = step.from.size() + (step.receives != kNone ? 1 : 0);
  const bool copies = got.empty() && std::any_of(step.to.begin(), step.to.end(),
                                                 [&lane](const Place& place) { return place.rank == lane.rank; });
  if (!got.empty()) lane.now.waits = got;
  if (terms > 1 || copies) {
    const std::uint64_t passes = terms > 1 ? terms - 1 : 1;
    lane.now.waits = {compute(lane.rank, lane.number, passes * bytes, lane.now.waits)};
  }
  Waits sent;
  if (step.sends != kNone) {
    const int to = plan_.connections[static_cast<std::size_t>(step.sends)].to;
    const std::uint64_t tag = next_tag(lane.rank, to);
    sent.push_back(send(lane, to, tag, bytes, lane.now.waits));
    channels_[static_cast<std::size_t>(step.sends)].push_back({tag, lane.now.known});
  }
  for (const Place& place : step.to) {
    if (place.rank != lane.rank) sent.push_back(write_remote(lane, place, step.count, lane.now.waits));
  }
  if (!sent.empty()) lane.now.waits = sent;
  write_local(lane, step);
  return true;
}

}  // namespace param_sync::traces
