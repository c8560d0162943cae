#pragma once
/// @file Runs a schedule in virtual time.

#include "param_sync/schedule/schedule.hpp"
#include "param_sync/cost/network_model.hpp"

#include <vector>

namespace param_sync::simulate {

/// One message, from when its first byte leaves until its last byte has arrived.
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
  double end_s = 0;                 ///< time at which the last rank is done
  std::vector<Transfer> transfers;  ///< transfers, sorted by start
};

/// Runs a schedule that check() accepts. Rings have room for all messages. A message is added or forwarded when all of
/// it has arrived. Throws schedule::Error if a message uses a link that the topology does not have.
Timeline simulate(const schedule::Schedule& schedule, double chunk_bytes, const cost::NetworkModel& model);

}  // namespace param_sync::simulate
