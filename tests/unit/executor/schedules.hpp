#pragma once
// Small schedules of each scheme.
#include "param_sync/schedule/schemes.hpp"
#include "tests/unit/schedule/topologies.hpp"

namespace executor_test {

inline constexpr std::uint64_t kTimeoutNs = 60'000'000'000;

/// `nodes` workers; byteps has a summation node, too.
inline param_sync::schedule::Schedule make(const std::string& scheme, int nodes, int chunks = 0, int credits = 0) {
  param_sync::schedule::Request request;
  request.nodes = nodes;
  request.chunks = chunks;
  request.credits = credits;
  request.group_size = 2;
  request.stripes = 2;
  request.summation_nodes = scheme == "byteps" ? 1 : 0;
  const auto topology = schedule_test::full_topology(nodes);
  request.topology = &topology;
  return param_sync::schedule::generate(scheme, request);
}

}  // namespace executor_test
