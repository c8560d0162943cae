#pragma once
/// @file Predicts how long a schedule takes from what the checker counted, without running it.

#include "param_sync/schedule/check.hpp"
#include "param_sync/cost/network_model.hpp"

namespace param_sync::cost {

/// The numbers of a schedule that the cost model needs.
struct Costs {
  int chunks = 1;              ///< chunks of the tensor
  int depth = 0;               ///< Counts::depth
  double messages = 0;         ///< messages through the busiest port
  double port_chunks = 0;      ///< chunks through the busiest port
  double lane_messages = 0;    ///< messages of the busiest lane, or of a rank's levels one after the other
  double lane_chunks = 0;      ///< chunks of the same lane or levels
  double message_chunks = 0;   ///< mean size of a message, in chunks
  int waiting_levels = 0;      ///< levels at which the rank of the busiest port does not send
  double reduced_chunks = 0;   ///< chunks added one after the other, with nothing else to do meanwhile
  double hidden_messages = 0;  ///< messages that one lane adds while the next one arrives
  double hidden_chunks = 0;    ///< chunks in these messages
};

/// Returns the costs of a schedule for which check() has returned `counts`.
Costs costs_of(const schedule::Schedule& schedule, const schedule::Counts& counts);

/// How often a schedule pays each price of a network. Its time is linear in these prices.
struct Terms {
  double latencies = 0;    ///< number of times that it pays NetworkModel::latency_s
  double overheads = 0;    ///< number of times that it pays NetworkModel::overhead_s
  double bytes = 0;        ///< bytes through the port
  double added_bytes = 0;  ///< bytes that a lane adds

  /// The time at the prices of `model`.
  double seconds(const NetworkModel& model) const;
};

/// Returns the terms whose sum predicted_s() returns: those of the longer one of its two alternatives.
Terms terms_of(const Costs& costs, double bytes, const NetworkModel& model);

/// Predicts the seconds for `bytes` of data, on links that are all alike (it ignores the model's topology). It is the
/// longer one of these two times:
///
///     one lane's chain   D latency + lane + w hop + added bytes / C + excess
///     the busiest port   min(D, w + 2) latency + port + w hop + excess
///
/// D is the depth, w the number of levels at which the rank of the busiest port does not send. B is the
/// bandwidth, C the speed of additions. "port" and "lane" are messages * overhead + bytes / B of the busiest one; a hop
/// is overhead + m / B + m / C for a mean message m. The excess is how much longer a lane takes to add what arrives in
/// one level than that takes to arrive. If all ranks send one message m at each level, as in a ring, the time is
/// D (latency + overhead + m / B) + (D / 2) m / C.
double predicted_s(const Costs& costs, double bytes, const NetworkModel& model);

}  // namespace param_sync::cost
