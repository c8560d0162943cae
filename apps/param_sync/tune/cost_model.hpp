#pragma once
/// @file How long a schedule takes, from what the checker counted: without running it.

#include "schedule/check.hpp"
#include "simulate/network_model.hpp"

namespace param_sync::tune {

/// What the cost model needs of a schedule.
struct Costs {
  int chunks = 1;
  int rounds = 0;
  double messages = 0;         ///< through the busiest port
  double port_chunks = 0;      ///< and chunks
  double message_chunks = 0;   ///< a message's mean size
  int waiting_rounds = 0;      ///< in which the rank of that port does not send
  double reduced_chunks = 0;   ///< added one after the other with nothing else to do
  double hidden_messages = 0;  ///< added by one lane while the next one arrives
  double hidden_chunks = 0;
};

Costs costs_of(const schedule::Schedule& schedule, const schedule::Counts& counts);

/// Seconds for data of this size, on links that are all alike (the model's topology is not looked at):
///
///     T = R latency + (busiest port: messages overhead + bytes / B) + (fill: w (overhead + m / B + m / C)) + added
///     bytes / C
///
/// where R are the rounds, w those in which the rank with the busiest port does not send, m is the mean message, B the
/// bandwidth, and C how fast a lane adds. The excess is what a lane takes longer to add what arrives in one round than
/// it takes to arrive. Where all ranks send one message of m in each round, as in a ring, that is T = R (latency +
/// overhead + m / B) + (R / 2) m / C; it is exact in simulations of mesh, ring, rhd and butterfly where P is a power of
/// two.
double predicted_s(const Costs& costs, double bytes, const simulate::NetworkModel& model);

}  // namespace param_sync::tune
