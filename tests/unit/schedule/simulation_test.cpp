// Virtual time is what the papers' formulas say.
#include "network.hpp"
#include "topologies.hpp"

#include "param_sync/schedule/check.hpp"
#include "param_sync/schedule/schemes.hpp"
#include "simulate/draw.hpp"
#include "simulate/simulation.hpp"
#include "tune/chooser.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace {

using namespace param_sync::schedule;
using param_sync::simulate::simulate;
using param_sync::simulate::Timeline;
using namespace param_sync::cost;
using namespace param_sync::tune;
using schedule_test::network;

constexpr double kMegabyte = 1e6;

double simulated(const std::string& scheme, int nodes, int chunks, double bytes, const NetworkModel& model) {
  return simulated_s({scheme, chunks}, nodes, bytes, model);
}

void expect_near(double value, double wanted, const std::string& what) {
  EXPECT_NEAR(value, wanted, 1e-9 * wanted) << what;
}

/// T = D (alpha + S (1 / B + 1 / C)), where S is what is sent at each of D levels; those that do not add have no 1 / C.
TEST(Simulation, TakesAsLongAsTheClosedForms) {
  const NetworkModel m = network();
  const double bytes = 8 * kMegabyte, hop = m.latency_s + m.overhead_s;
  for (const int nodes : {2, 3, 4, 5, 8, 16}) {
    const double p = nodes, part = bytes / p;
    const std::string what = std::to_string(nodes) + " nodes";
    expect_near(simulated("ring", nodes, nodes, bytes, m),
                2 * (p - 1) * (hop + part / m.bandwidth) + (p - 1) * part / m.reduce_bandwidth, "ring, " + what);
    // All of a phase's messages leave one after the other; additions but the last are done meanwhile.
    expect_near(simulated("mesh", nodes, nodes, bytes, m),
                2 * (m.latency_s + (p - 1) * (m.overhead_s + part / m.bandwidth)) + part / m.reduce_bandwidth,
                "mesh, " + what);
    if ((nodes & (nodes - 1)) != 0) continue;
    const double steps = std::log2(p), all = (p - 1) * part;
    expect_near(simulated("rhd", nodes, nodes, bytes, m),
                2 * (steps * hop + all / m.bandwidth) + all / m.reduce_bandwidth, "rhd, " + what);
    expect_near(simulated("butterfly", nodes, 1, bytes, m),
                steps * (hop + bytes / m.bandwidth + bytes / m.reduce_bandwidth), "butterfly, " + what);
  }
}

TEST(Simulation, SummationNodesNeedTheirLeastTime) {
  NetworkModel m = network();
  m.latency_s = m.overhead_s = 0;
  m.reduce_bandwidth = 1e300;
  const int n = 8;
  for (int k = 0; k <= n; k += 4) {
    Request request;
    request.nodes = n;
    request.summation_nodes = k;
    request.chunks = 8 * (n * n + k * n - 2 * k);
    const double bytes = 1e9, time = simulate(generate("byteps", request), bytes / request.chunks, m).end_s;
    const double least = 2.0 * n * (n - 1) * bytes / ((n * n + k * n - 2.0 * k) * m.bandwidth);  // the paper's
    // All ports are busy with pushes and pulls at once, but for the first push and the last pull of eight.
    EXPECT_GE(time, least * 0.999999) << k;
    EXPECT_LE(time, 1.25 * least) << k;
  }
}

TEST(Simulation, ALinkOfATopologyHasItsOwnBandwidth) {
  NetworkModel m = network();
  m.latency_s = m.overhead_s = 0;
  m.reduce_bandwidth = 1e300;
  m.topology = schedule_test::ring_topology(4);  // 10 GB/s each
  const double bytes = 40e9;
  expect_near(simulated("ring", 4, 4, bytes, m), 2 * 3 * 10e9 / 10e9, "ring");
  EXPECT_THROW(simulated("mesh", 4, 4, bytes, m), Error);  // 0 and 2 are not linked
  // Sums go up against the direction in which results come down: a link of two trees has both. So an all-reduce takes
  // twice a broadcast at most.
  const Schedule trees = generate("blink", {.nodes = 4, .chunks = 400, .topology = &*m.topology});
  const double time = simulate(trees, bytes / trees.chunks, m).end_s, broadcast = bytes / (m.topology->min_cut() * 1e9);
  EXPECT_GE(time, broadcast);
  EXPECT_LE(time, 2.05 * broadcast);
}

TEST(Simulation, EveryMessageIsInTheTimeline) {
  for (const char* scheme : {"ps", "ring:segmented", "rhd", "tree:double-binary", "hierarchical"}) {
    Request request;
    request.nodes = 6;
    const Schedule schedule = generate(scheme, request);
    const Timeline timeline = simulate(schedule, 1000, network());
    std::size_t messages = 0;
    for (const Edge& edge : check(schedule).edges) messages += edge.messages;
    EXPECT_EQ(timeline.transfers.size(), messages) << scheme;
    for (const auto& transfer : timeline.transfers) {
      EXPECT_GE(transfer.end_s - transfer.start_s, 50e-6 + transfer.count * 1000 / 1.25e9) << scheme;
      EXPECT_LE(transfer.end_s, timeline.end_s) << scheme;
    }
  }
}

TEST(Draw, AnArrowForEachMessageAndALineForEachRank) {
  Request request;
  request.nodes = 5;
  const Schedule schedule = generate("ring", request);
  const std::string svg = param_sync::simulate::draw(schedule, "a <title> & \"more\"");
  const auto count = [&](const std::string& what) {
    std::size_t found = 0;
    for (std::size_t at = svg.find(what); at != std::string::npos; at = svg.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count(" to "), 2 * 40U);  // "chunk 0 from 0 to 1, reduce, 0 to 2"
  EXPECT_EQ(count(", reduce,"), 20U);
  EXPECT_EQ(count(", copy,"), 20U);
  EXPECT_EQ(count(">rank "), 5U);
  EXPECT_NE(svg.find("a &lt;title&gt; &amp; &quot;more&quot;"), std::string::npos);
}

}  // namespace
