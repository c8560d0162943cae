#include "param_sync/cost/cost_model.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace param_sync::cost {

namespace {

/// The messages of a lane that follow each other, and their chunks. If a lane sends to a rank and then receives from
/// it, both messages move at the same time and count once.
struct InTurn {
  double messages = 0;
  double chunks = 0;

  explicit InTurn(const schedule::Lane& lane) {
    int partner = schedule::kNobody, sent = 0;  // the op before sends to `partner`, if it only sends
    for (const schedule::Op& op : lane) {
      const bool exchanges = op.receives() && !op.sends() && op.from == partner;
      if (op.kind != schedule::Kind::apply) chunks += exchanges ? std::max(0, op.count - sent) : op.count;
      if (!exchanges) ++messages;
      partner = op.sends() && !op.receives() ? op.to : schedule::kNobody;
      sent = op.count;
    }
  }
};

}  // namespace

Costs costs_of(const schedule::Schedule& schedule, const schedule::Counts& counts) {
  Costs costs;
  costs.chunks = schedule.chunks;
  costs.depth = counts.depth;
  std::vector<double> sent(counts.ranks.size()), received(counts.ranks.size());  // messages
  double messages = 0, chunks = 0;
  for (const schedule::Edge& edge : counts.edges) {
    sent[static_cast<std::size_t>(edge.from)] += static_cast<double>(edge.messages);
    received[static_cast<std::size_t>(edge.to)] += static_cast<double>(edge.messages);
    messages += static_cast<double>(edge.messages);
    chunks += static_cast<double>(edge.chunks);
  }
  costs.message_chunks = messages > 0 ? chunks / messages : 0;
  for (std::size_t rank = 0; rank < counts.ranks.size(); ++rank) {
    const schedule::Work& work = counts.ranks[rank];
    const auto port = static_cast<double>(std::max(work.sent, work.received));
    if (port > costs.port_chunks) {
      costs.port_chunks = port;
      costs.messages = std::max(sent[rank], received[rank]);
      costs.waiting_levels = std::max(0, counts.depth - work.sending_levels);
    }
    for (const schedule::Lane& lane : schedule.ranks[rank].lanes) {
      const InTurn in_turn(lane);
      if (in_turn.chunks <= costs.lane_chunks) continue;
      costs.lane_chunks = in_turn.chunks;
      costs.lane_messages = in_turn.messages;
    }
    if (sent[rank] > 0) {  // messages of different levels follow each other, whatever their lanes
      const double levels_chunks = static_cast<double>(work.sent) / sent[rank] * work.sending_levels;
      if (levels_chunks > costs.lane_chunks) {
        costs.lane_chunks = levels_chunks;
        costs.lane_messages = work.sending_levels;
      }
    }
    if (work.messages_reduced == 0) continue;
    // A rank adds a message while the next ones of the level arrive. Only the last addition of a level takes time of
    // its own.
    const double each = static_cast<double>(work.reduced) / static_cast<double>(work.messages_reduced);
    costs.reduced_chunks = std::max(costs.reduced_chunks, each * work.reducing_levels);
    for (const schedule::Lane& lane : schedule.ranks[rank].lanes) {
      double lane_messages = -work.reducing_levels, lane_chunks = -each * work.reducing_levels;
      for (const schedule::Op& op : lane) {
        lane_messages += op.reduces() ? 1 : 0;
        lane_chunks += op.reduces() ? op.count : 0;
      }
      if (lane_chunks <= costs.hidden_chunks) continue;
      costs.hidden_messages = lane_messages;
      costs.hidden_chunks = lane_chunks;
    }
  }
  return costs;
}

namespace {

Terms& operator+=(Terms& sum, const Terms& other) {
  sum.latencies += other.latencies;
  sum.overheads += other.overheads;
  sum.bytes += other.bytes;
  sum.added_bytes += other.added_bytes;
  return sum;
}

}  // namespace

double Terms::seconds(const NetworkModel& model) const {
  return latencies * model.latency_s + overheads * model.overhead_s + bytes / model.bandwidth +
         added_bytes / model.reduce_bandwidth;
}

Terms terms_of(const Costs& costs, double bytes, const NetworkModel& model) {
  const double chunk = bytes / costs.chunks, message = chunk * costs.message_chunks;
  const Terms chain{static_cast<double>(costs.depth), costs.lane_messages, costs.lane_chunks * chunk,
                    costs.reduced_chunks * chunk};
  const Terms port{static_cast<double>(std::min(costs.depth, costs.waiting_levels + 2)), costs.messages,
                   costs.port_chunks * chunk, 0};
  const double waiting = costs.waiting_levels;
  const Terms hops{0, waiting, waiting * message, waiting * message};
  const Terms excess{0, -costs.hidden_messages, -costs.hidden_chunks * chunk, costs.hidden_chunks * chunk};
  Terms sum = chain.seconds(model) >= port.seconds(model) ? chain : port;
  sum += hops;
  if (excess.seconds(model) > 0) sum += excess;
  return sum;
}

double predicted_s(const Costs& costs, double bytes, const NetworkModel& model) {
  return terms_of(costs, bytes, model).seconds(model);
}

}  // namespace param_sync::cost
