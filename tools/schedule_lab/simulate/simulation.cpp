#include "simulate/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

namespace param_sync::simulate {
namespace {

using schedule::Kind;
using schedule::Lane;
using schedule::Op;
using schedule::OpRef;
using schedule::Schedule;

struct LaneRun {
  int rank = 0;
  int lane = 0;
  const Lane* ops = nullptr;
  std::vector<double> ended_s;  // end times of the complete ops
  bool busy = false;            // true if the next op has started

  bool all_done() const { return ended_s.size() == ops->size(); }
  const Op& op() const { return (*ops)[ended_s.size()]; }
};

/// A call that is made when virtual time reaches `time_s`.
struct Event {
  double time_s = 0;
  std::uint64_t number = 0;  // events of the same time happen in the order in which they were planned
  std::function<void()> happens;

  bool operator>(const Event& other) const { return std::tie(time_s, number) > std::tie(other.time_s, other.number); }
};

/// Messages on one channel that have arrived, and the lane that waits for the next one.
struct Inbox {
  std::deque<std::size_t> arrived;  // indices in Timeline::transfers
  int waiting = schedule::kNobody;
};

class Simulation {
 public:
  Simulation(const Schedule& schedule, double chunk_bytes, const cost::NetworkModel& model);
  Timeline run();

 private:
  using ChannelKey = std::tuple<int, int, int>;

  void at(double time_s, std::function<void()> happens) {
    events_.push({time_s, ++events_planned_, std::move(happens)});
  }
  int flat(int rank, int lane) const { return first_lane_[static_cast<std::size_t>(rank)] + lane; }
  double bytes(const Op& op) const { return chunk_bytes_ * op.count; }
  double bandwidth(int from, int to) const;
  double& port(std::map<std::pair<int, int>, double>& ports, int rank, int peer) const;

  void start_next(int lane);
  void send(int lane);
  void receive(int lane);
  void end_op(int lane);

  double chunk_bytes_;
  const cost::NetworkModel& model_;
  std::map<std::pair<int, int>, double> link_bandwidths_;
  std::vector<int> first_lane_;
  std::vector<LaneRun> lanes_;
  std::map<ChannelKey, Inbox> inboxes_;
  std::map<std::pair<int, int>, double> sending_until_s_, receiving_until_s_;  // by port
  std::vector<std::vector<int>> waiting_for_ops_;                              // lanes, by rank
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t events_planned_ = 0;
  double now_s_ = 0;
  Timeline timeline_;
};

Simulation::Simulation(const Schedule& schedule, double chunk_bytes, const cost::NetworkModel& model)
    : chunk_bytes_(chunk_bytes), model_(model) {
  if (model.topology) {
    for (const schedule::Link& link : model.topology->links()) {
      link_bandwidths_[{link.a, link.b}] = link.bandwidth * 1e9;
      link_bandwidths_[{link.b, link.a}] = link.bandwidth * 1e9;
    }
  }
  for (int rank = 0; rank < schedule.nodes(); ++rank) {
    first_lane_.push_back(static_cast<int>(lanes_.size()));
    int lane = 0;
    for (const Lane& ops : schedule.ranks[static_cast<std::size_t>(rank)].lanes)
      lanes_.push_back({rank, lane++, &ops, {}});
  }
  waiting_for_ops_.resize(schedule.ranks.size());
}

double Simulation::bandwidth(int from, int to) const {
  if (!model_.topology) return model_.bandwidth;
  const auto found = link_bandwidths_.find({from, to});
  if (found == link_bandwidths_.end()) {
    throw schedule::Error(fmt::format("the topology has no link from {} to {}, which the schedule uses", from, to));
  }
  return found->second;
}

/// Returns the time until which the port is busy. Each link of a topology has its own ports.
double& Simulation::port(std::map<std::pair<int, int>, double>& ports, int rank, int peer) const {
  return ports[{rank, model_.topology ? peer : schedule::kNobody}];
}

void Simulation::start_next(int lane_id) {
  LaneRun& lane = lanes_[static_cast<std::size_t>(lane_id)];
  if (lane.busy || lane.all_done()) return;
  for (const OpRef& before : lane.op().after) {
    const LaneRun& other = lanes_[static_cast<std::size_t>(flat(lane.rank, before.lane))];
    if (other.ended_s.size() > static_cast<std::size_t>(before.index)) continue;
    waiting_for_ops_[static_cast<std::size_t>(lane.rank)].push_back(lane_id);
    return;
  }
  lane.busy = true;
  const Op& op = lane.op();
  if (op.kind == Kind::apply) {
    at(now_s_ + bytes(op) / model_.reduce_bandwidth, [this, lane_id] { end_op(lane_id); });
  } else if (op.receives()) {
    receive(lane_id);
  } else {
    send(lane_id);
  }
}

/// Sends the lane's message as soon as the port is free.
void Simulation::send(int lane_id) {
  const LaneRun& lane = lanes_[static_cast<std::size_t>(lane_id)];
  const Op& op = lane.op();
  const int from = lane.rank, to = op.to;
  const double takes_s = model_.overhead_s + bytes(op) / bandwidth(from, to);
  double& free_s = port(sending_until_s_, from, to);
  const double start_s = std::max(now_s_, free_s);
  free_s = start_s + takes_s;
  at(free_s, [this, lane_id] { end_op(lane_id); });
  const ChannelKey key{from, to, op.channel};
  const Transfer transfer{from, to, op.chunk, op.count, false, start_s, 0};
  at(start_s + model_.latency_s, [this, key, transfer, takes_s] {  // its first byte arrives
    double& taken_until_s = port(receiving_until_s_, transfer.to, transfer.from);
    taken_until_s = std::max(now_s_, taken_until_s) + takes_s;
    at(taken_until_s, [this, key, transfer] {
      Inbox& inbox = inboxes_[key];
      inbox.arrived.push_back(timeline_.transfers.size());
      timeline_.transfers.push_back(transfer);
      timeline_.transfers.back().end_s = now_s_;
      const int waiting = std::exchange(inbox.waiting, schedule::kNobody);
      if (waiting != schedule::kNobody) receive(waiting);
    });
  });
}

void Simulation::receive(int lane_id) {
  const LaneRun& lane = lanes_[static_cast<std::size_t>(lane_id)];
  const Op& op = lane.op();
  Inbox& inbox = inboxes_[{op.from, lane.rank, op.channel}];
  if (inbox.arrived.empty()) {
    inbox.waiting = lane_id;
    return;
  }
  timeline_.transfers[inbox.arrived.front()].reduces = op.reduces();
  inbox.arrived.pop_front();
  const double ready_s = now_s_ + (op.reduces() ? bytes(op) / model_.reduce_bandwidth : 0);
  if (op.sends()) {
    at(ready_s, [this, lane_id] { send(lane_id); });
  } else {
    at(ready_s, [this, lane_id] { end_op(lane_id); });
  }
}

void Simulation::end_op(int lane_id) {
  LaneRun& lane = lanes_[static_cast<std::size_t>(lane_id)];
  lane.ended_s.push_back(now_s_);
  lane.busy = false;
  timeline_.end_s = std::max(timeline_.end_s, now_s_);
  std::vector<int> waiting;
  waiting.swap(waiting_for_ops_[static_cast<std::size_t>(lane.rank)]);
  start_next(lane_id);
  for (const int other : waiting) start_next(other);
}

Timeline Simulation::run() {
  for (int lane = 0; lane < static_cast<int>(lanes_.size()); ++lane) start_next(lane);
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_s_ = event.time_s;
    event.happens();
  }
  for (const LaneRun& lane : lanes_) {
    if (!lane.all_done()) throw schedule::Error("the schedule does not end: check it first");
  }
  std::stable_sort(timeline_.transfers.begin(), timeline_.transfers.end(),
                   [](const Transfer& a, const Transfer& b) { return a.start_s < b.start_s; });
  return std::move(timeline_);
}

}  // namespace

Timeline simulate(const Schedule& schedule, double chunk_bytes, const cost::NetworkModel& model) {
  return Simulation(schedule, chunk_bytes, model).run();
}

}  // namespace param_sync::simulate
