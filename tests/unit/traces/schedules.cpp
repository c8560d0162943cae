#include "schedules.hpp"

#include "param_sync/schedule/schemes.hpp"
#include "param_sync/schedule/topology.hpp"

namespace traces_test {

using namespace param_sync::schedule;

Schedule make(const std::string& scheme, int nodes, int chunks, int credits) {
  std::vector<Link> links;
  for (int node = 0; node < nodes; ++node) {
    for (int other = node + 1; other < nodes; ++other) links.push_back({node, other, 10.0 + node});
  }
  const Topology topology(nodes, links);
  Request request;
  request.nodes = nodes;
  request.chunks = chunks;
  request.credits = credits;
  request.summation_nodes = 2;
  request.topology = &topology;
  return generate(scheme, request);
}

// Sanitizers' builds are not optimized: there fewer nodes show as much of memory.
#ifdef TRACES_TEST_FEW
const std::vector<int> kNodes = {2, 3, 8};
#else
const std::vector<int> kNodes = {2, 3, 4, 5, 6, 7, 8};
#endif

const std::vector<Schedule>& schedules() {
  static const std::vector<Schedule> all = [] {
    std::vector<Schedule> made;
    for (const auto* names : {&scheme_names(), &factor_scheme_names()}) {
      for (const std::string& scheme : *names) {
        for (const int nodes : kNodes) {
          for (const int chunks : {2 * nodes, 11}) made.push_back(make(scheme, nodes, chunks));
          if (has_credits(scheme)) made.push_back(make(scheme, nodes, 2 * nodes, 1));
        }
      }
    }
    return made;
  }();
  return all;
}

std::string name_of(const Schedule& schedule) {
  return schedule.scheme + ", " + std::to_string(schedule.nodes()) + " ranks, " + std::to_string(schedule.chunks);
}

TrafficByPair traffic_of(const Schedule& schedule, std::uint64_t floats) {
  TrafficByPair traffic;
  const auto begin = [&](int chunk) {
    return floats * static_cast<std::uint64_t>(chunk) / static_cast<std::uint64_t>(schedule.chunks);
  };
  for (int rank = 0; rank < schedule.nodes(); ++rank) {
    for (const Lane& lane : schedule.ranks[static_cast<std::size_t>(rank)].lanes) {
      for (const Op& op : lane) {
        if (!op.sends()) continue;
        Traffic& sent = traffic[{rank, op.to}];
        ++sent.messages;
        sent.bytes += op.is_signal() ? 1 : sizeof(float) * (begin(op.chunk + op.count) - begin(op.chunk));
      }
    }
  }
  return traffic;
}

}  // namespace traces_test
