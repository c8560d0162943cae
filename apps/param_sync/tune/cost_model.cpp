#include "tune/cost_model.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace param_sync::tune {

Costs costs_of(const schedule::Schedule& schedule, const schedule::Counts& counts) {
  Costs costs;
  costs.chunks = schedule.chunks;
  costs.rounds = counts.rounds;
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
      costs.waiting_rounds = std::max(0, counts.rounds - work.sending_rounds);
    }
    for (const schedule::Lane& lane : schedule.ranks[rank].lanes) {
      double lane_chunks = 0;
      for (const schedule::Op& op : lane) lane_chunks += op.kind == schedule::Kind::apply ? 0 : op.count;
      if (lane_chunks <= costs.lane_chunks) continue;
      costs.lane_chunks = lane_chunks;
      costs.lane_messages = static_cast<double>(lane.size());
    }
    if (work.messages_reduced == 0) continue;
    // What arrives in one round is added while more arrives: all but the last message.
    const double each = static_cast<double>(work.reduced) / static_cast<double>(work.messages_reduced);
    costs.reduced_chunks = std::max(costs.reduced_chunks, each * work.reducing_rounds);
    for (const schedule::Lane& lane : schedule.ranks[rank].lanes) {
      double lane_messages = -work.reducing_rounds, lane_chunks = -each * work.reducing_rounds;
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

double predicted_s(const Costs& costs, double bytes, const simulate::NetworkModel& model) {
  const double chunk = bytes / costs.chunks, message = chunk * costs.message_chunks;
  const double port_s = costs.messages * model.overhead_s + costs.port_chunks * chunk / model.bandwidth;
  const double lane_s = costs.lane_messages * model.overhead_s + costs.lane_chunks * chunk / model.bandwidth;
  const double hop_s = model.overhead_s + message / model.bandwidth + message / model.reduce_bandwidth;
  const double excess_s = costs.hidden_chunks * chunk / model.reduce_bandwidth -
                          costs.hidden_messages * model.overhead_s - costs.hidden_chunks * chunk / model.bandwidth;
  const double chain_s = costs.rounds * model.latency_s + lane_s +
                         costs.reduced_chunks * chunk / model.reduce_bandwidth;
  const double busy_s = std::min(costs.rounds, costs.waiting_rounds + 2) * model.latency_s + port_s;
  return std::max(chain_s, busy_s) + costs.waiting_rounds * hop_s + std::max(0.0, excess_s);
}

}  // namespace param_sync::tune
