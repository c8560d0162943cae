// Spanning trees packed over a topology.
#include "topologies.hpp"

#include "param_sync/schedule/check.hpp"
#include "param_sync/schedule/packing.hpp"
#include "param_sync/schedule/schemes.hpp"
#include "simulate/simulation.hpp"
#include "tests/support/error_of.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>

namespace {

using namespace param_sync::schedule;
using namespace schedule_test;
using gpusock::test::error_of;

/// By trying all halves.
double cut_by_trying(const Topology& topology) {
  double least = std::numeric_limits<double>::infinity();
  for (unsigned half = 1; half < 1U << (topology.nodes() - 1); ++half) {  // the last node is in the other half
    double sum = 0;
    for (const Link& link : topology.links()) {
      if ((half >> link.a & 1) != (half >> link.b & 1)) sum += link.bandwidth;
    }
    least = std::min(least, sum);
  }
  return least;
}

TEST(Topology, MinCutIsTheLeastOfAllCuts) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const Topology topology = random_topology(2 + static_cast<int>(seed) % 8, static_cast<int>(seed) % 15, seed);
    EXPECT_DOUBLE_EQ(topology.min_cut(), cut_by_trying(topology)) << seed;
  }
  EXPECT_EQ(ring_topology(1).min_cut(), 0);
}

/// How fast the schedule's broadcast is, where links are the only limit: chunks over the time of the busiest link.
double rate_of(const Topology& topology, const Schedule& schedule) {
  std::map<std::pair<int, int>, double> bandwidth;
  for (const Link& link : topology.links()) {
    bandwidth[{link.a, link.b}] = link.bandwidth;
    bandwidth[{link.b, link.a}] = link.bandwidth;
  }
  std::map<std::pair<int, int>, double> down;  // chunks
  for (int rank = 0; rank < schedule.nodes(); ++rank) {
    for (const Lane& lane : schedule.ranks[static_cast<std::size_t>(rank)].lanes) {
      for (const Op& op : lane) {
        if (op.receives() && !op.reduces()) down[{op.from, rank}] += op.count;
      }
    }
  }
  double time = 0;
  for (const auto& [ends, chunks] : down) {
    if (!bandwidth.contains(ends)) return 0;  // there is no such link
    time = std::max(time, chunks / bandwidth[ends]);
  }
  return schedule.chunks / time;
}

Schedule blink(const Topology& topology, int chunks) {
  return generate("blink", {.nodes = topology.nodes(), .chunks = chunks, .topology = &topology});
}

void expect_near_bound(const Topology& topology, const std::string& what, int chunks = 400) {
  double packed = 0;
  std::map<std::pair<int, int>, double> load;
  for (const PackedTree& tree : pack_trees(topology)) {
    packed += tree.bandwidth;
    for (int node = 0; node < topology.nodes(); ++node) {
      const int parent = tree.tree[static_cast<std::size_t>(node)];
      if (parent != kNobody) load[{parent, node}] += tree.bandwidth;
    }
  }
  EXPECT_GE(packed, 0.99 * topology.min_cut()) << what;
  for (const Link& link : topology.links()) {
    EXPECT_LE((load[{link.a, link.b}]), link.bandwidth * 1.000001) << what;
    EXPECT_LE((load[{link.b, link.a}]), link.bandwidth * 1.000001) << what;
  }
  const Schedule schedule = blink(topology, chunks);
  EXPECT_GE(rate_of(topology, schedule), 0.95 * topology.min_cut()) << what;
  const Counts counts = check(schedule);
  EXPECT_EQ(counts.chunks_sent(), static_cast<std::uint64_t>(2 * (topology.nodes() - 1) * chunks)) << what;
}

TEST(Blink, ReachesTheBoundOnRegularTopologies) {
  for (const int nodes : {2, 3, 4, 5, 8, 9}) {
    if (kFew && nodes > 5) continue;
    expect_near_bound(ring_topology(nodes), "ring of " + std::to_string(nodes));
    expect_near_bound(full_topology(nodes), "all of " + std::to_string(nodes));
  }
}

TEST(Blink, ReachesTheBoundOnADgx1AlsoWhereLinksAreBroken) {
  const std::vector<Link> all = dgx1_links();
  expect_near_bound(Topology(8, all), "DGX-1");
  for (std::size_t broken = 0; broken < all.size(); broken += kFew ? 8 : 1) {
    std::vector<Link> links = all;
    links[broken].bandwidth = 0;
    expect_near_bound(Topology(8, links), "DGX-1 without link " + std::to_string(broken));
  }
}

TEST(Blink, ReachesTheBoundOnUnevenTopologies) {
  for (unsigned seed = 0; seed < (kFew ? 4 : 12); ++seed) {
    expect_near_bound(random_topology(3 + static_cast<int>(seed), 4 + 2 * static_cast<int>(seed), seed),
                      "seed " + std::to_string(seed));
  }
}

/// Few trees are enough where each is about as wide as it can be. (Where failing widths were halved, some of these
/// topologies had less, one of them 66 %.)
TEST(Blink, ReachesTheBoundWithFewTrees) {
  for (unsigned seed = 0; seed < (kFew ? 60 : 1000); ++seed) {
    const int nodes = 2 + static_cast<int>(seed % 23), more = static_cast<int>(seed * 7 % 61);
    if (kFew && nodes + more > 30) continue;
    const Topology topology = random_topology(nodes, more, seed);
    const std::vector<PackedTree> trees = pack_trees(topology);
    EXPECT_GE(bandwidth_of(trees), 0.99 * topology.min_cut()) << "seed " << seed;
    EXPECT_LE(trees.size(), 32U) << "seed " << seed;
  }
}

TEST(Blink, ReachesTheBoundWhereAllNodesAreLinked) {
  for (const int nodes : {15, 16, 17, 32}) {
    if (kFew && nodes > 15) continue;
    expect_near_bound(full_topology(nodes), "all of " + std::to_string(nodes));
  }
  if (!kFew) expect_near_bound(random_topology(16, 95, 1), "16 uneven", 2000);
}

TEST(Blink, AnyNumberOfNodesIsRight) {
  for (int nodes = 1; nodes <= 64; nodes += nodes < 17 ? 1 : 47) {
    const Topology topology = random_topology(nodes, nodes, static_cast<unsigned>(nodes));
    EXPECT_EQ(check(blink(topology, 20)).chunks_sent(), static_cast<std::uint64_t>(2 * (nodes - 1) * 20));
  }
}

/// An all-reduce's bandwidth as a share of the min-cut bound, in virtual time, where links are the only limit.
double all_reduce_share(const Topology& topology) {
  constexpr double kBytes = 1e9;
  param_sync::cost::NetworkModel model;
  model.latency_s = model.overhead_s = 0;
  model.reduce_bandwidth = 1e300;
  model.topology = topology;
  Request request;
  request.nodes = topology.nodes();
  request.topology = &topology;
  const Schedule schedule = generate("blink", request);
  return kBytes / param_sync::simulate::simulate(schedule, kBytes / schedule.chunks, model).end_s /
         (topology.min_cut() * 1e9);
}

/// What docs/schedules.md promises: sums go up the links on which results come down.
TEST(Blink, AnAllReduceHasTheShareOfTheBoundThatIsPromised) {
  std::vector<double> shares;
  for (unsigned seed = 0; seed < (kFew ? 6 : 60); ++seed) {
    const int size = static_cast<int>(seed % 14);
    shares.push_back(all_reduce_share(random_topology(3 + size, 4 + 2 * size, seed)));
    EXPECT_GE(shares.back(), 0.45) << "seed " << seed;
  }
  std::sort(shares.begin(), shares.end());
  std::printf("least %.3f, tenth %.3f, median %.3f, most %.3f\n", shares.front(), shares[shares.size() / 10],
              shares[shares.size() / 2], shares.back());
  if (!kFew) {
    EXPECT_GE(shares[shares.size() / 2], 0.75);
  }
}

std::string topology_problem(const std::string& text) {
  return error_of<Error>([&] { topology_from_json(text); });
}

TEST(Topology, FilesAreReadAndBadOnesRefused) {
  const Topology topology = topology_from_json(
      R"({"version": 1, "nodes": 3, "links": [{"a": 0, "b": 1, "bandwidth": 2.5}, {"a": 1, "b": 0, "bandwidth": 1},
         {"a": 2, "b": 1, "bandwidth": 4}]})");
  ASSERT_EQ(topology.links().size(), 2U);
  EXPECT_EQ(topology.links()[0].bandwidth, 3.5);
  const auto expect = [](const std::string& links, const std::string& says) {
    const std::string problem = topology_problem(R"({"version": 1, "nodes": 4, "links": )" + links + "}");
    EXPECT_NE(problem.find(says), std::string::npos) << problem;
  };
  expect("[]", "no links lead from node 0 to 1, 2, 3");
  expect(R"([{"a": 0, "b": 1, "bandwidth": 1}, {"a": 2, "b": 3, "bandwidth": 1}, {"a": 1, "b": 2, "bandwidth": 0}])",
         "no links lead from node 0 to 2, 3");
  expect(R"([{"a": 0, "b": 4, "bandwidth": 1}])", "links[0].b: is 4, not 0 to 3");
  expect(R"([{"a": 0, "b": 0, "bandwidth": 1}])", "both ends are one node");
  expect(R"([{"a": 0, "b": 1, "bandwidth": -1}])", "links[0].bandwidth: is -1");
  expect(R"([{"a": 0, "b": 1, "bandwidth": "fast"}])", "is \"fast\", not a number");
  expect(R"([{"a": 0, "b": 1}])", "links[0]: \"bandwidth\" is missing");
  expect("7", "is 7, not an array");
  EXPECT_NE(topology_problem("{").find("the topology is no JSON"), std::string::npos);
}

}  // namespace
