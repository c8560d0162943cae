// Each scheme is right for any number of nodes and chunks, and costs what its paper says.
#include "topologies.hpp"

#include "param_sync/schedule/check.hpp"
#include "param_sync/schedule/consistent_hash.hpp"
#include "param_sync/schedule/collectives.hpp"
#include "param_sync/schedule/rank_order.hpp"
#include "param_sync/schedule/schemes.hpp"
#include "param_sync/schedule/senders.hpp"
#include "tests/support/error_of.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <set>

namespace {

using namespace param_sync::schedule;
using gpusock::test::error_of;

using schedule_test::kFew;

const std::vector<int> kNodes = kFew ? std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8}
                                     : std::vector<int>{1,  2,  3,  4,  5,  6,  7,  8,  9, 10,
                                                        11, 12, 13, 14, 15, 16, 17, 32, 64};

int log2_floor(int number) { return std::bit_width(static_cast<unsigned>(number)) - 1; }
int log2_ceil(int number) { return std::bit_width(static_cast<unsigned>(number) - 1); }

Counts counts_of(const Schedule& schedule) {
  try {
    return check(schedule);
  } catch (const Error& error) {
    ADD_FAILURE() << schedule.scheme << ", " << schedule.nodes() << " nodes, " << schedule.chunks
                  << " chunks: " << error.what();
    return {0, {}, std::vector<Work>(schedule.ranks.size())};
  }
}

Counts counts_of(const std::string& scheme, int nodes, int chunks) {
  Request request;
  request.nodes = nodes;
  request.chunks = chunks;
  return counts_of(generate(scheme, request));
}

void expect_each_sends(const Counts& counts, int chunks) {
  for (const Work& work : counts.ranks) EXPECT_EQ(work.sent, static_cast<std::uint64_t>(chunks));
}

/// Every rank gets what all others have, and no rank gets anything twice: no all-reduce sends less in all.
/// (Patarasuk and Yuan, 2009, theorem 1.)
void expect_least_traffic(const Counts& counts, int nodes, int chunks) {
  EXPECT_EQ(counts.chunks_sent(), static_cast<std::uint64_t>(2 * (nodes - 1) * chunks)) << nodes;
}

TEST(Generators, TheTableSaysWhatASchemeIsLike) {
  const Topology topology = schedule_test::ring_topology(5);
  for (const auto* names : {&scheme_names(), &factor_scheme_names()}) {
    for (const std::string& scheme : *names) {
      Request request;
      request.nodes = 5;
      request.topology = &topology;
      const Result result = generate(scheme, request).result;
      EXPECT_EQ(moves(scheme, Moves::sums), result == Result::all_reduce) << scheme;
      EXPECT_EQ(moves(scheme, Moves::weights) || moves(scheme, Moves::factors_to_owner),
                result == Result::parameter_server)
          << scheme;
      EXPECT_EQ(moves(scheme, Moves::factors_to_all), result == Result::all_gather) << scheme;
      EXPECT_EQ(moves_factors(scheme), names == &factor_scheme_names()) << scheme;
      for (const int chunks : chunks_to_try(scheme, request)) EXPECT_GT(chunks, 0) << scheme;
    }
  }
  EXPECT_EQ(schemes_with(Setting::credits), (std::vector<std::string>{"ps", "ps:even"}));
  EXPECT_EQ(schemes_with(Setting::topology), (std::vector<std::string>{"blink"}));
  EXPECT_TRUE(needs_settings("byteps") && needs_settings("blink") && needs_settings("hierarchical"));
  EXPECT_FALSE(needs_settings("ps") || needs_settings("splitstream") || needs_settings("no scheme"));
  EXPECT_FALSE(moves("no scheme", Moves::sums) || moves_factors("no scheme") || has_credits("no scheme"));
}

TEST(Generators, AnyNumberOfChunksIsRight) {
  const Topology topologies[] = {schedule_test::ring_topology(5), schedule_test::full_topology(6)};
  for (const std::string& scheme : scheme_names()) {
    for (const int nodes : {1, 2, 3, 4, 5, 6, 7, 12, 17}) {
      if (kFew && nodes > 5) continue;
      for (const int chunks : {0, 1, 2, 3, nodes + 1, 2 * nodes + 3, 37}) {
        Request request;
        request.nodes = nodes;
        request.chunks = chunks;
        if (scheme == "blink") {
          if (nodes != 5 && nodes != 6) continue;
          request.topology = &topologies[nodes - 5];
        }
        const Schedule schedule = generate(scheme, request);
        EXPECT_EQ(schedule.scheme, scheme);
        EXPECT_EQ(schedule.chunks, chunks != 0 ? chunks : default_chunks(scheme, request));
        counts_of(schedule);
      }
    }
  }
}

TEST(Generators, MeshAndEvenServersSendEachPartOnceAndEachResultOnce) {
  for (const char* scheme : {"mesh", "ps:even"}) {
    for (const int nodes : kNodes) {
      const Counts counts = counts_of(scheme, nodes, 2 * nodes);
      expect_each_sends(counts, 2 * (nodes - 1) * 2);
      EXPECT_EQ(counts.depth, nodes > 1 ? 2 : 0);
      EXPECT_EQ(counts.edges.size(), static_cast<std::size_t>(nodes * (nodes - 1)));
    }
  }
}

TEST(Generators, RingIsAsPatarasukAndYuan) {
  for (const int nodes : kNodes) {
    const Counts counts = counts_of("ring", nodes, 3 * nodes);
    expect_each_sends(counts, 2 * (nodes - 1) * 3);
    EXPECT_EQ(counts.depth, 2 * (nodes - 1));
    for (const Edge& edge : counts.edges) {
      EXPECT_EQ(edge.to, (edge.from + 1) % nodes);
      EXPECT_EQ(edge.messages, static_cast<std::uint64_t>(2 * (nodes - 1)));
    }
  }
}

TEST(Generators, SegmentedRingSendsTheSameInSmallMessagesAndReadsOnce) {
  for (const int nodes : kNodes) {
    for (const int lanes : {1, 3}) {
      Request request;
      request.nodes = nodes;
      request.lanes = lanes;
      request.chunks = 4 * nodes;
      const Counts counts = counts_of(generate("ring:segmented", request));
      expect_each_sends(counts, 2 * (nodes - 1) * 4);
      EXPECT_EQ(counts.depth, 2 * (nodes - 1) * ((4 + lanes - 1) / lanes)) << nodes;
      for (const Edge& edge : counts.edges) EXPECT_EQ(edge.messages, edge.chunks);
      // One's own data is read once, whatever it is added to; the rest comes from the ring.
      for (const Work& work : counts.ranks)
        EXPECT_EQ(work.reads, static_cast<std::uint64_t>(nodes > 1 ? 4 * nodes : 0));
    }
  }
}

TEST(Generators, ChainSendsEachChunkUpAndDownOnce) {
  for (const int nodes : kNodes) {
    const Counts counts = counts_of("chain", nodes, 5);
    EXPECT_EQ(counts.depth, 2 * (nodes - 1));
    for (int rank = 0; rank < nodes; ++rank) {
      const int neighbours = (rank > 0) + (rank < nodes - 1);
      EXPECT_EQ(counts.ranks[static_cast<std::size_t>(rank)].sent, static_cast<std::uint64_t>(5 * neighbours));
    }
    expect_least_traffic(counts, nodes, 5);
  }
}

TEST(Generators, HalvesOfTheRingAndBroadcastsSendTheLeast) {
  for (const int nodes : kNodes) {
    for (const bool gathers : {false, true}) {
      const Counts counts = counts_of(gathers ? ring_all_gather(nodes, 3 * nodes)
                                              : ring_reduce_scatter(nodes, 3 * nodes));
      expect_each_sends(counts, (nodes - 1) * 3);
      EXPECT_EQ(counts.depth, nodes - 1);
    }
    for (const int chunks : {1, nodes + 1}) {  // not each rank has a part
      counts_of(ring_all_gather(nodes, chunks));
      counts_of(ring_reduce_scatter(nodes, chunks));
    }
    for (const int root : {0, nodes / 2, nodes - 1}) {
      const Counts counts = counts_of(chain_broadcast(nodes, 4, root));
      EXPECT_EQ(counts.depth, nodes - 1);
      EXPECT_EQ(counts.chunks_sent(), static_cast<std::uint64_t>(4 * (nodes - 1)));
      EXPECT_EQ(counts.chunks_sent_max(), nodes > 1 ? 4u : 0u);
    }
  }
}

TEST(Generators, TheChainAddsInRankOrderAndOthersDoNot) {
  for (const int nodes : {1, 2, 3, 5, 8}) {
    for (const std::string& scheme : scheme_names()) {
      if (scheme == "blink") continue;
      Request request;
      request.nodes = nodes;
      // Of two sides of an addition the order does not matter; so a few others are in rank order for three nodes.
      if (nodes == 3 && scheme != "ring" && scheme != "chain") continue;
      EXPECT_EQ(sums_in_rank_order(generate(scheme, request)), nodes <= 2 || scheme == "chain") << scheme << nodes;
    }
    EXPECT_EQ(sums_in_rank_order(ring_reduce_scatter(nodes, nodes)), nodes <= 2);
    EXPECT_FALSE(sums_in_rank_order(ring_all_gather(nodes, nodes)));
  }
}

/// So that an executor which moves a tensor in several passes sends a pass while sums of the one before still come
/// back.
TEST(Generators, TheMeshSendsItsPartsWithoutWaiting) {
  for (const int nodes : {2, 3, 8}) {
    const Schedule schedule = generate("mesh", {.nodes = nodes});
    for (const Rank& rank : schedule.ranks) {
      ASSERT_EQ(rank.lanes.size(), 3u);
      EXPECT_EQ(rank.lanes[0].size(), static_cast<std::size_t>(nodes - 1));
      for (const Op& op : rank.lanes[0]) {
        EXPECT_EQ(op.kind, Kind::send);
        EXPECT_TRUE(op.after.empty());
      }
      for (const Op& op : rank.lanes[2]) EXPECT_NE(op.channel, rank.lanes[0][0].channel);
    }
  }
}

/// The schedule as an executor runs it where its data does not fit into the rings: pass after pass of each lane's ops,
/// each with its own part of the data.
Schedule in_passes(const Schedule& one, int passes) {
  Schedule all = one;
  all.chunks = one.chunks * passes;
  for (std::size_t rank = 0; rank < all.ranks.size(); ++rank) {
    const std::vector<Lane>& lanes = one.ranks[rank].lanes;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      for (int pass = 1; pass < passes; ++pass) {
        for (Op op : lanes[lane]) {
          op.chunk += pass * one.chunks;
          for (OpRef& before : op.after) {
            before.index += pass * static_cast<int>(lanes[static_cast<std::size_t>(before.lane)].size());
          }
          all.ranks[rank].lanes[lane].push_back(op);
        }
      }
    }
  }
  return all;
}

TEST(Generators, APassOfTheMeshOrTheRingBeginsBeforeTheOneBeforeItHasEnded) {
  for (const int nodes : {2, 3, 8}) {
    for (const int passes : {1, 2, 5}) {
      EXPECT_EQ(counts_of(in_passes(generate("mesh", {.nodes = nodes}), passes)).depth, 2) << nodes;
      // A rank sends the first part of the next pass when it has sent the last part of this one, for which it waited
      // for all but one.
      EXPECT_EQ(counts_of(in_passes(generate("ring", {.nodes = nodes}), passes)).depth,
                2 * (nodes - 1) + (passes - 1) * (nodes - 2))
          << nodes << " nodes, " << passes << " passes";
    }
  }
}

TEST(Generators, HalvingDoublingIsAsRabenseifner) {
  for (const int nodes : kNodes) {
    const int power = 1 << log2_floor(nodes);
    const Counts counts = counts_of("rhd", nodes, power);
    expect_least_traffic(counts, nodes, power);
    EXPECT_EQ(counts.depth, 2 * log2_floor(nodes) + (power < nodes ? 2 : 0)) << nodes;
    if (power == nodes) expect_each_sends(counts, 2 * (nodes - 1));
  }
}

TEST(Generators, ButterflyIsRecursiveDoubling) {
  for (const int nodes : kNodes) {
    const int power = 1 << log2_floor(nodes);
    const Counts counts = counts_of("butterfly", nodes, 3);
    // A chain of all exchanges flips all bits of an index. It begins with a rank's data given away and ends with a
    // result got back only where both indices have such a rank, of which there are P - 2^k.
    const int pairs = nodes - power, more = pairs == 0 ? 0 : 2 * pairs > power ? 2 : 1;
    EXPECT_EQ(counts.depth, log2_floor(nodes) + more) << nodes;
    EXPECT_EQ(counts.chunks_sent(), static_cast<std::uint64_t>(3 * (power * log2_floor(nodes) + 2 * (nodes - power))));
  }
}

TEST(Generators, TreesAreAsHighAsTheirLogarithms) {
  for (const int nodes : kNodes) {
    const Counts one = counts_of("tree:binary", nodes, 5);
    expect_least_traffic(one, nodes, 5);
    EXPECT_EQ(one.depth, 2 * log2_floor(nodes)) << nodes;
    const Counts two = counts_of("tree:double-binary", nodes, 6);
    expect_least_traffic(two, nodes, 6);
    EXPECT_EQ(two.depth, nodes == 1 ? 0 : 2 * log2_ceil(nodes)) << nodes;
    EXPECT_LE(two.chunks_sent_max(), 2U * 6) << nodes;  // half of 3 up and down in one tree, half of 1 in the other
  }
}

/// By rank: its children on each channel. Each channel is a tree.
std::vector<std::map<int, std::set<int>>> children_of(const Schedule& schedule) {
  std::vector<std::map<int, std::set<int>>> children(schedule.ranks.size());
  for (std::size_t rank = 0; rank < children.size(); ++rank) {
    for (const Lane& lane : schedule.ranks[rank].lanes) {
      for (const Op& op : lane) {
        if (op.reduces()) children[rank][op.channel].insert(op.from);
      }
    }
  }
  return children;
}

TEST(Generators, TreesOfSeveralStripesHaveNoInnerRankInCommon) {
  for (const int nodes : kNodes) {
    Request request;
    request.nodes = nodes;
    request.chunks = 8;
    for (const char* scheme : {"tree:double-binary", "splitstream"}) {
      const auto all = children_of(generate(scheme, request));
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank].size() <= 1) continue;
        EXPECT_EQ(scheme, std::string("tree:double-binary"));
        EXPECT_TRUE(rank == 0 && nodes % 2 == 1) << scheme << ", rank " << rank << " of " << nodes;
        for (const auto& [tree, children] : all[rank]) EXPECT_EQ(children.size(), 1U);
      }
    }
  }
}

TEST(Generators, SplitStreamsTreesAreHeaps) {
  for (const int nodes : kNodes) {
    const Counts counts = counts_of("splitstream", nodes, 8);
    expect_least_traffic(counts, nodes, 8);
    const int stripes = std::min(4, nodes), inner = nodes / stripes;  // of the smallest group
    const int arity = std::max(1, (nodes - 1 + inner - 1) / inner);
    int levels = 0;
    for (int reached = 1, level = 1; reached < nodes; reached += level) {
      level *= arity;
      ++levels;
    }
    EXPECT_LE(counts.depth, 2 * levels + 2) << nodes;  // groups that are larger have smaller arity: a level more at
                                                       // most
    EXPECT_GE(counts.depth, 2 * levels) << nodes;
  }
}

TEST(Generators, HierarchyIsThreeAllReducesPhases) {
  for (const int nodes : kNodes) {
    for (const int group : {1, 2, 4, 8, 64}) {
      Request request;
      request.nodes = nodes;
      request.group_size = group;
      const Schedule schedule = generate("hierarchical", request);
      const Counts counts = counts_of(schedule);
      const int groups = (nodes + group - 1) / group;
      expect_least_traffic(counts, nodes, schedule.chunks);
      EXPECT_EQ(counts.depth, (std::min(group, nodes) > 1 ? 2 : 0) + 2 * (groups - 1)) << nodes << " in " << group;
      if (nodes % group != 0) continue;
      // 2 (g - 1) / g of the data within the group, 2 (G - 1) / (G g) between groups; there are g G chunks.
      expect_each_sends(counts, 2 * (group - 1) * groups + 2 * (groups - 1));
    }
  }
}

TEST(Generators, BytePsReachesItsOptimum) {
  for (const int workers : kNodes) {
    for (const int extra : std::set<int>{0, 1, workers / 2, workers}) {
      if ((workers == 1 && extra > 0) || (workers > 17 && extra == 1)) continue;
      Request request;
      request.nodes = workers;
      request.summation_nodes = extra;
      // So few chunks that the optimal shares are whole: workers sum (n - k) / unit each, extra nodes 2 (n - 1) / unit.
      const int unit = std::max(1, extra == 0 ? workers : std::gcd(workers - extra, 2 * (workers - 1)));
      request.chunks = (workers * workers + extra * workers - 2 * extra) / unit;
      const Schedule schedule = generate("byteps", request);
      EXPECT_EQ(schedule.nodes(), workers + extra);
      const Counts counts = counts_of(schedule);
      expect_each_sends(counts, 2 * workers * (workers - 1) / unit);  // the paper's time, with B = 1
      EXPECT_EQ(counts.depth, workers > 1 ? 2 : 0);
    }
  }
}

TEST(Generators, ParameterServerSendsARangeToItsOwnerOnce) {
  for (const int nodes : kNodes) {
    const int chunks = 8 * nodes;
    const Counts counts = counts_of("ps", nodes, chunks);
    expect_least_traffic(counts, nodes, chunks);
    EXPECT_EQ(counts.depth, nodes > 1 ? 2 : 0);
    std::vector<int> ranks(static_cast<std::size_t>(nodes));
    std::iota(ranks.begin(), ranks.end(), 0);
    const ConsistentHash hash(ranks);
    std::vector<int> owned(ranks.size()), ranges(ranks.size());
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int owner = hash.owner(position_of(chunk, chunks));
      ++owned[static_cast<std::size_t>(owner)];
      const bool begins = chunk == 0 || hash.owner(position_of(chunk - 1, chunks)) != owner;
      ranges[static_cast<std::size_t>(owner)] += begins ? 1 : 0;
    }
    for (const Edge& edge : counts.edges) {
      const auto from = static_cast<std::size_t>(edge.from), to = static_cast<std::size_t>(edge.to);
      EXPECT_EQ(edge.chunks, static_cast<std::uint64_t>(owned[from] + owned[to]));
      EXPECT_EQ(edge.messages, static_cast<std::uint64_t>(ranges[from] + ranges[to]));
    }
  }
}

/// Exactly so many nodes may send to an owner, whatever the timing, and a node waits for its turn for so many others at
/// most.
TEST(Generators, CreditsBoundTheSendersOfAnOwnerAndTheirWait) {
  for (const std::string scheme : {"ps", "ps:even"}) {
    for (const int nodes : {2, 3, 4, 5, 8, 16}) {
      if (kFew && nodes > 5) continue;
      Request request;
      request.nodes = nodes;
      request.chunks = 4 * nodes;
      const Counts without = counts_of(generate(scheme, request));
      for (const int credits : {1, 2, 3, nodes - 1}) {
        if (credits >= nodes) continue;
        request.credits = credits;
        const Schedule schedule = generate(scheme, request);
        const Counts counts = counts_of(schedule);
        EXPECT_EQ(senders_at_once(schedule), credits) << scheme << nodes;
        EXPECT_EQ(counts.chunks_sent(), without.chunks_sent());
        EXPECT_EQ(counts.chunks_sent_max(), without.chunks_sent_max());
        if (scheme == "ps:even") {
          EXPECT_EQ(counts.depth, 2 * ((nodes - 1 + credits - 1) / credits) + 1) << nodes << credits;
        }
      }
    }
  }
  EXPECT_EQ(senders_at_once(generate("ps:even", {.nodes = 5})), 4);
  EXPECT_EQ(senders_at_once(generate("chain", {.nodes = 5, .chunks = 1})), 1);
}

TEST(ConsistentHash, ANodeThatJoinsOrLeavesMovesLittle) {
  constexpr int kKeys = kFew ? 1000 : 5000;
  std::vector<int> nodes;
  std::vector<int> owners(kKeys, 0);
  for (int node = 0; node <= (kFew ? 16 : 64); ++node) {
    nodes.push_back(node);
    const ConsistentHash hash(nodes);
    int moved = 0;
    std::vector<int> owned(nodes.size());
    for (int key = 0; key < kKeys; ++key) {
      const int owner = hash.owner(position_of(key, kKeys));
      if (owner != owners[static_cast<std::size_t>(key)]) {
        EXPECT_EQ(owner, node) << "a key moved between nodes that stay";
        ++moved;
      }
      owners[static_cast<std::size_t>(key)] = owner;
      ++owned[static_cast<std::size_t>(owner)];
    }
    // Read backwards, the same is a node that leaves.
    const double fair = kKeys / static_cast<double>(nodes.size());
    EXPECT_LE(moved, 1.5 * fair) << nodes.size() << " nodes";
    for (const int keys : owned) EXPECT_LE(keys, 1.5 * fair) << nodes.size() << " nodes";
  }
}

TEST(Generators, WhatCannotBeIsRefusedWithAReason) {
  const auto problem = [](const std::string& scheme, const Request& request) {
    return error_of<Error>([&] { generate(scheme, request); });
  };
  Request request;
  EXPECT_NE(problem("rings", request).find("there is no scheme \"rings\"; there are: ps, mesh, ring,"),
            std::string::npos);
  EXPECT_EQ(problem("blink", request), "blink needs a topology");
  const Topology five = schedule_test::ring_topology(5);
  request.topology = &five;
  EXPECT_EQ(problem("blink", request), "the topology has 5 nodes, not 4");
  request.credits = 4;
  EXPECT_NE(problem("ps", request).find("4 credits for the 3 nodes"), std::string::npos);
  request.credits = 0;
  request.summation_nodes = 5;
  EXPECT_NE(problem("byteps", request).find("no use for 5 summation nodes"), std::string::npos);
  request.nodes = 0;
  EXPECT_EQ(problem("ring", request), "0 nodes, not 1 to 1024");
}

}  // namespace
