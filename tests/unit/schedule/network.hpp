#pragma once
/// @file A network for tests of times: 10 Gbit/s, 50 us.

#include "param_sync/cost/network_model.hpp"

namespace schedule_test {

inline param_sync::cost::NetworkModel network() {
  param_sync::cost::NetworkModel model;
  model.latency_s = 50e-6;
  model.overhead_s = 2e-6;
  model.bandwidth = 1.25e9;
  model.reduce_bandwidth = 8e9;
  return model;
}

}  // namespace schedule_test
