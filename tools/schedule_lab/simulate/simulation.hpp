#pragma once
/// @file A schedule in virtual time.

#include "param_sync/schedule/schedule.hpp"
#include "param_sync/cost/network_model.hpp"

#include <vector>

namespace param_sync::simulate {

/// One message, from when its first byte leaves to when its last one has arrived.
struct Transfer {
  int from = 0;
  int to = 0;
  int chunk = 0;
  int count = 0;
  bool reduces = false;
  double start_s = 0;
  double end_s = 0;
};

struct Timeline {
  double end_s = 0;                 ///< when the last rank is done
  std::vector<Transfer> transfers;  ///< by their starts
};

/// Runs a schedule that check() passes. Rings have room for all messages, and a message is added, or passed on, when
/// all of it has arrived. Throws schedule::Error where a message takes a link that the topology lacks.
Timeline simulate(const schedule::Schedule& schedule, double chunk_bytes, const cost::NetworkModel& model);

}  // namespace param_sync::simulate
