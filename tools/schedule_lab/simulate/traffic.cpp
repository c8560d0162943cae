#include "simulate/traffic.hpp"

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

namespace param_sync::simulate {
namespace traffic_parts {  // not anonymous, since Plan::Data and Traffic::Impl have members of these types

using schedule::Kind;
using schedule::kNobody;

/// An op. Numbers of lanes, ops and channels are unique across all ranks.
struct PlanOp {
  Kind kind = Kind::send;
  bool pushed = false;  ///< true if its message goes to the owner
  int rank = 0;
  int count = 0;
  int to = kNobody;
  int in = kNobody;
  int out = kNobody;
  int after_begin = 0;
  int after_end = 0;
  std::vector<int> awaited_by;  ///< lanes with an op that waits for it

  bool receives() const { return in != kNobody; }
  bool sends() const { return out != kNobody; }
  bool reduces() const { return kind == Kind::recv_reduce || kind == Kind::recv_reduce_send; }
};

struct PlanLane {
  int rank = 0;
  int begin = 0;
  int end = 0;
};

/// An op and its lane.
struct PlanRef {
  int lane = 0;
  int op = 0;
};

}  // namespace traffic_parts

using namespace traffic_parts;

struct Plan::Data {
  int chunks = 1;
  int workers = 0;
  int ranks = 0;
  int channels = 0;
  std::vector<PlanOp> ops;
  std::vector<PlanLane> lanes;
  std::vector<PlanRef> after;
  std::vector<std::vector<int>> lanes_of;  ///< lanes, by rank
};

namespace traffic_parts {

/// Returns, by chunk, the rank that applies the optimizer to it, or kNobody.
std::vector<int> owners_of(const schedule::Schedule& schedule) {
  std::vector<int> owners(static_cast<std::size_t>(schedule.chunks), kNobody);
  for (int rank = 0; rank < schedule.nodes(); ++rank) {
    for (const schedule::Lane& lane : schedule.ranks[static_cast<std::size_t>(rank)].lanes) {
      for (const schedule::Op& op : lane) {
        if (op.kind == Kind::apply) std::fill_n(owners.begin() + op.chunk, op.count, rank);
      }
    }
  }
  return owners;
}

class PlanMaker {
 public:
  explicit PlanMaker(const schedule::Schedule& schedule) : schedule_(schedule), owners_(owners_of(schedule)) {}

  template <class Data>
  Data make() {
    Data data;
    data.chunks = schedule_.chunks;
    data.workers = schedule_.workers;
    data.ranks = schedule_.nodes();
    data.lanes_of.resize(static_cast<std::size_t>(data.ranks));
    for (int rank = 0; rank < data.ranks; ++rank) {
      for (const schedule::Lane& lane : schedule_.ranks[static_cast<std::size_t>(rank)].lanes) {
        data.lanes_of[static_cast<std::size_t>(rank)].push_back(static_cast<int>(data.lanes.size()));
        const int begin = static_cast<int>(data.ops.size());
        for (const schedule::Op& op : lane) data.ops.push_back(made_of(op, rank));
        data.lanes.push_back({rank, begin, static_cast<int>(data.ops.size())});
      }
    }
    for (int lane = 0; lane < static_cast<int>(data.lanes.size()); ++lane) add_waits(data, lane);
    data.channels = static_cast<int>(channels_.size());
    return data;
  }

 private:
  PlanOp made_of(const schedule::Op& op, int rank) {
    PlanOp made;
    made.kind = op.kind;
    made.rank = rank;
    made.count = op.count;
    const int owner = owners_[static_cast<std::size_t>(op.chunk)];
    made.pushed = owner != kNobody && (op.reduces() || (op.kind == Kind::send && rank != owner));
    if (op.receives()) made.in = channel({op.from, rank, op.channel});
    if (op.sends()) {
      made.to = op.to;
      made.out = channel({rank, op.to, op.channel});
    }
    return made;
  }

  int channel(const std::tuple<int, int, int>& key) {
    return channels_.emplace(key, static_cast<int>(channels_.size())).first->second;
  }

  template <class Data>
  void add_waits(Data& data, int lane) {
    const PlanLane& at = data.lanes[static_cast<std::size_t>(lane)];
    const auto& lanes_here = data.lanes_of[static_cast<std::size_t>(at.rank)];
    const auto own = std::find(lanes_here.begin(), lanes_here.end(), lane) - lanes_here.begin();
    const schedule::Lane& ops = schedule_.ranks[static_cast<std::size_t>(at.rank)].lanes[static_cast<std::size_t>(own)];
    for (int i = at.begin; i < at.end; ++i) {
      PlanOp& op = data.ops[static_cast<std::size_t>(i)];
      op.after_begin = static_cast<int>(data.after.size());
      for (const schedule::OpRef& before : ops[static_cast<std::size_t>(i - at.begin)].after) {
        const int other = lanes_here[static_cast<std::size_t>(before.lane)];
        const int index = data.lanes[static_cast<std::size_t>(other)].begin + before.index;
        data.after.push_back({other, index});
        data.ops[static_cast<std::size_t>(index)].awaited_by.push_back(lane);
      }
      op.after_end = static_cast<int>(data.after.size());
    }
  }

  const schedule::Schedule& schedule_;
  std::vector<int> owners_;
  std::map<std::tuple<int, int, int>, int> channels_;
};

enum class EventKind : std::uint8_t { sent, first_byte, arrived, received, ended, timer };

/// An event. Its `index` is a lane (sent, received, ended), an op (first_byte, arrived) or a rank (timer).
struct TrafficEvent {
  double time_s = 0;
  std::uint64_t number = 0;  // events of the same time happen in the order in which they were planned
  EventKind kind = EventKind::timer;
  int index = 0;
  std::size_t exchange = 0;

  bool operator>(const TrafficEvent& other) const {
    return time_s != other.time_s ? time_s > other.time_s : number > other.number;
  }
};

struct Waiting {
  int priority = 0;
  std::uint64_t number = 0;
  std::size_t exchange = 0;
  int lane = 0;

  bool operator>(const Waiting& other) const {
    return priority != other.priority ? priority > other.priority : number > other.number;
  }
};

struct Port {
  bool sending = false;
  double receiving_until_s = 0;
  double bytes_sent = 0;
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting;
};

struct ChannelState {
  int arrived = 0;     // messages that have arrived and that no op has taken
  int lane = kNobody;  // the lane that waits for a message
};

/// An exchange that runs.
struct Running {
  Exchange exchange;
  std::vector<int> next;  // by lane: the op that runs or comes next
  std::vector<char> busy;
  std::vector<char> ready;  // by rank
  std::vector<int> lanes_left;
  std::vector<ChannelState> channels;
  int ranks_left = 0;
};

}  // namespace traffic_parts

Plan::Plan(const schedule::Schedule& schedule)
    : data_(std::make_unique<const Data>(PlanMaker(schedule).make<Data>())) {}
Plan::~Plan() = default;
Plan::Plan(Plan&&) noexcept = default;
int Plan::chunks() const { return data_->chunks; }
int Plan::workers() const { return data_->workers; }
std::uint64_t Plan::messages() const {
  return static_cast<std::uint64_t>(
      std::count_if(data_->ops.begin(), data_->ops.end(), [](const PlanOp& op) { return op.sends(); }));
}

struct Traffic::Impl {
  cost::NetworkModel model;
  TrafficListener& listener;
  std::vector<Port> ports;
  std::vector<std::unique_ptr<Running>> exchanges;  // null once all ranks have ended
  std::priority_queue<TrafficEvent, std::vector<TrafficEvent>, std::greater<>> events;
  std::uint64_t planned = 0;
  std::size_t unfinished = 0;
  double now_s = 0;

  const Plan::Data& plan(const Running& run) const { return *run.exchange.plan->data_; }
  Running& running(std::size_t id) { return *exchanges[id]; }
  Port& port(int rank) { return ports[static_cast<std::size_t>(rank)]; }
  const PlanOp& op_of(const Running& run, int lane) const {
    return plan(run).ops[static_cast<std::size_t>(run.next[static_cast<std::size_t>(lane)])];
  }
  double bytes(const Running& run, const PlanOp& op) const {
    return op.count * (op.pushed ? run.exchange.pushed_bytes : run.exchange.chunk_bytes);
  }
  void at(double time_s, EventKind kind, std::size_t exchange, int index) {
    events.push({time_s, ++planned, kind, index, exchange});
  }

  void try_start(std::size_t id, int lane);
  void receive(std::size_t id, int lane);
  void queue_message(std::size_t id, int lane);
  void send_next(int rank);
  void first_byte(std::size_t id, int op);
  void arrived(std::size_t id, int op);
  void end_op(std::size_t id, int lane);
  void happens(const TrafficEvent& event);
};

void Traffic::Impl::try_start(std::size_t id, int lane) {
  Running& run = running(id);
  const auto i = static_cast<std::size_t>(lane);
  const PlanLane& where = plan(run).lanes[i];
  if (run.busy[i] != 0 || run.next[i] == where.end || run.ready[static_cast<std::size_t>(where.rank)] == 0) return;
  const PlanOp& op = op_of(run, lane);
  for (int k = op.after_begin; k < op.after_end; ++k) {
    const PlanRef& before = plan(run).after[static_cast<std::size_t>(k)];
    if (run.next[static_cast<std::size_t>(before.lane)] <= before.op) return;
  }
  run.busy[i] = 1;
  if (op.kind == Kind::apply) {
    at(now_s + op.count * (run.exchange.chunk_bytes / model.reduce_bandwidth + run.exchange.apply_s), EventKind::ended,
       id, lane);
  } else if (op.receives()) {
    receive(id, lane);
  } else {
    queue_message(id, lane);
  }
}

void Traffic::Impl::receive(std::size_t id, int lane) {
  Running& run = running(id);
  const PlanOp& op = op_of(run, lane);
  ChannelState& channel = run.channels[static_cast<std::size_t>(op.in)];
  if (channel.arrived == 0) {
    channel.lane = lane;
    return;
  }
  --channel.arrived;
  at(now_s + (op.reduces() ? bytes(run, op) / model.reduce_bandwidth : 0), EventKind::received, id, lane);
}

void Traffic::Impl::queue_message(std::size_t id, int lane) {
  const Running& run = running(id);
  const int rank = op_of(run, lane).rank;
  port(rank).waiting.push({run.exchange.priority, ++planned, id, lane});
  if (!port(rank).sending) send_next(rank);
}

void Traffic::Impl::send_next(int rank) {
  Port& from = port(rank);
  from.sending = !from.waiting.empty();
  if (!from.sending) return;
  const Waiting message = from.waiting.top();
  from.waiting.pop();
  const Running& run = running(message.exchange);
  const PlanOp& op = op_of(run, message.lane);
  from.bytes_sent += bytes(run, op);
  at(now_s + model.overhead_s + bytes(run, op) / model.bandwidth, EventKind::sent, message.exchange, message.lane);
  at(now_s + model.latency_s, EventKind::first_byte, message.exchange,
     run.next[static_cast<std::size_t>(message.lane)]);
}

void Traffic::Impl::first_byte(std::size_t id, int index) {
  const Running& run = running(id);
  const PlanOp& op = plan(run).ops[static_cast<std::size_t>(index)];
  double& until_s = port(op.to).receiving_until_s;
  until_s = std::max(now_s, until_s) + model.overhead_s + bytes(run, op) / model.bandwidth;
  at(until_s, EventKind::arrived, id, index);
}

void Traffic::Impl::arrived(std::size_t id, int index) {
  Running& run = running(id);
  ChannelState& channel = run.channels[static_cast<std::size_t>(plan(run).ops[static_cast<std::size_t>(index)].out)];
  ++channel.arrived;
  const int lane = std::exchange(channel.lane, kNobody);
  if (lane != kNobody) receive(id, lane);
}

void Traffic::Impl::end_op(std::size_t id, int lane) {
  Running& run = running(id);
  const auto i = static_cast<std::size_t>(lane);
  const PlanOp& op = op_of(run, lane);
  const PlanLane& where = plan(run).lanes[i];
  run.busy[i] = 0;
  ++run.next[i];
  try_start(id, lane);
  for (const int other : op.awaited_by) try_start(id, other);
  if (run.next[i] != where.end || --run.lanes_left[static_cast<std::size_t>(where.rank)] != 0) return;
  const int rank = where.rank;
  if (--run.ranks_left == 0) {
    exchanges[id].reset();
    --unfinished;
  }
  listener.exchange_done(id, rank);
}

void Traffic::Impl::happens(const TrafficEvent& event) {
  switch (event.kind) {
    case EventKind::sent: {
      const int rank = plan(running(event.exchange)).lanes[static_cast<std::size_t>(event.index)].rank;
      end_op(event.exchange, event.index);
      return send_next(rank);
    }
    case EventKind::first_byte:
      return first_byte(event.exchange, event.index);
    case EventKind::arrived:
      return arrived(event.exchange, event.index);
    case EventKind::received:
      return op_of(running(event.exchange), event.index).sends() ? queue_message(event.exchange, event.index)
                                                                 : end_op(event.exchange, event.index);
    case EventKind::ended:
      return end_op(event.exchange, event.index);
    case EventKind::timer:
      return listener.timer(event.index);
  }
}

Traffic::Traffic(int ranks, const cost::NetworkModel& model, TrafficListener& listener)
    : impl_(new Impl{model, listener, std::vector<Port>(static_cast<std::size_t>(ranks)), {}, {}}) {}
Traffic::~Traffic() = default;

std::size_t Traffic::begin(const Exchange& exchange) {
  const Plan::Data& plan = *exchange.plan->data_;
  auto run = std::make_unique<Running>();
  run->exchange = exchange;
  for (const PlanLane& lane : plan.lanes) run->next.push_back(lane.begin);
  run->busy.resize(plan.lanes.size());
  run->ready.resize(static_cast<std::size_t>(plan.ranks));
  for (const auto& lanes : plan.lanes_of) run->lanes_left.push_back(static_cast<int>(lanes.size()));
  run->channels.resize(static_cast<std::size_t>(plan.channels));
  run->ranks_left = plan.ranks;
  impl_->exchanges.push_back(std::move(run));
  ++impl_->unfinished;
  return impl_->exchanges.size() - 1;
}

void Traffic::ready(std::size_t exchange, int rank) {
  Impl& impl = *impl_;
  Running& run = impl.running(exchange);
  run.ready[static_cast<std::size_t>(rank)] = 1;
  const std::vector<int>& lanes = impl.plan(run).lanes_of[static_cast<std::size_t>(rank)];
  if (lanes.empty()) {  // there is one node, or this rank has nothing to do
    if (--run.ranks_left == 0) {
      impl.exchanges[exchange].reset();
      --impl.unfinished;
    }
    return impl.listener.exchange_done(exchange, rank);
  }
  for (const int lane : lanes) impl.try_start(exchange, lane);
}

void Traffic::after(double seconds, int rank) { impl_->at(impl_->now_s + seconds, EventKind::timer, 0, rank); }

void Traffic::run() {
  Impl& impl = *impl_;
  while (!impl.events.empty()) {
    const TrafficEvent event = impl.events.top();
    impl.events.pop();
    impl.now_s = event.time_s;
    impl.happens(event);
  }
}

double Traffic::now_s() const { return impl_->now_s; }
double Traffic::bytes_sent(int rank) const { return impl_->port(rank).bytes_sent; }
std::size_t Traffic::unfinished() const { return impl_->unfinished; }

}  // namespace param_sync::simulate
