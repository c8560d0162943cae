#pragma once
/// @file How long a schedule takes, from what the checker counted: without running it.

#include "param_sync/schedule/check.hpp"
#include "param_sync/cost/network_model.hpp"

namespace param_sync::cost {

/// What the cost model needs of a schedule.
struct Costs {
  int chunks = 1;              ///< of the tensor
  int rounds = 0;              ///< Counts::rounds
  double messages = 0;         ///< messages through the busiest port
  double port_chunks = 0;      ///< chunks through it
  double lane_messages = 0;    ///< of the busiest lane, or of a rank's rounds one after the other
  double lane_chunks = 0;      ///< of the same lane
  double message_chunks = 0;   ///< a message's mean size
  int waiting_rounds = 0;      ///< in which the rank of that port does not send
  double reduced_chunks = 0;   ///< added one after the other with nothing else to do
  double hidden_messages = 0;  ///< added by one lane while the next one arrives
  double hidden_chunks = 0;    ///< in these messages
};

/// `counts`: what check() has found for this schedule.
Costs costs_of(const schedule::Schedule& schedule, const schedule::Counts& counts);

/// How often a schedule pays each price of a network: its time is linear in them.
struct Terms {
  double latencies = 0;    ///< NetworkModel::latency_s
  double overheads = 0;    ///< NetworkModel::overhead_s
  double bytes = 0;        ///< through the port
  double added_bytes = 0;  ///< by a lane

  /// The time, at these prices.
  double seconds(const NetworkModel& model) const;
};

/// Of the terms' alternatives those that predicted_s() takes on this network.
Terms terms_of(const Costs& costs, double bytes, const NetworkModel& model);

/// Seconds for data of this size, on links that are all alike (the model's topology is not looked at). The longer of
/// two:
///
///     one lane's chain   R latency + lane + w hop + added bytes / C + excess
///     the busiest port   min(R, w + 2) latency + port + w hop + excess
///
/// R are the rounds, and w those in which the rank of the busiest port does not send. Port and lane are messages *
/// overhead + bytes / B of the busiest of them; a hop is overhead + m / B + m / C for a mean message m. The excess is
/// what a lane takes longer to add what arrives in one round than that takes to arrive. Where all ranks send one
/// message m in each round, as in a ring, that is T = R (latency + overhead + m / B) + (R / 2) m / C.
double predicted_s(const Costs& costs, double bytes, const NetworkModel& model);

}  // namespace param_sync::cost
