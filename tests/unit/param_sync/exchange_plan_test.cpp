#include "plan/exchange_plan.hpp"

#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace param_sync {
namespace {

/// Else lanes wait for each other's turns in the middle of a step, and many small ones wait the longest.
TEST(ExchangePlan, ARingHasRoomForWhatAParameterServerSendsInAStep) {
  for (const char* scheme : {"ps", "ps:even", "mesh"}) {
    Config config;
    config.scheme = scheme;
    const ExchangePlan plan = make_exchange_plan(
        config, make_layout(std::vector<std::uint32_t>{784, 128, 64, 10}, config.nodes));
    for (std::size_t i = 0; i < plan.schedules.size(); ++i) {
      const schedule::Schedule& schedule = plan.schedules[i];
      for (const schedule::Rank& rank : schedule.ranks) {
        std::map<std::pair<int, int>, std::uint64_t> sent;  // bytes by rank and channel, but for headers
        for (const schedule::Lane& lane : rank.lanes) {
          for (const schedule::Op& op : lane) {
            if (!op.sends()) continue;
            sent[{op.to, op.channel}] += std::uint64_t{plan.buckets[i].parameters} * sizeof(float) *
                                         static_cast<std::uint64_t>(op.count) /
                                         static_cast<std::uint64_t>(schedule.chunks);
          }
        }
        for (const auto& [edge, bytes] : sent) EXPECT_LT(bytes, plan.ring_bytes) << scheme << ", layer " << i;
      }
    }
  }
}

TEST(ExchangePlan, CountsTheConnectionsOfAllNodes) {
  Config config;
  config.nodes = 4;
  const ExchangePlan plan = make_exchange_plan(config, make_layout(std::vector<std::uint32_t>{8, 6, 4}, config.nodes));
  const int pairs = 6, layers = 2, lanes_of_a_pair = 2 * layers;                        // each is the other's owner
  EXPECT_EQ(connections_between(plan, config.nodes), pairs * lanes_of_a_pair + pairs);  // and one for last words
}

}  // namespace
}  // namespace param_sync
