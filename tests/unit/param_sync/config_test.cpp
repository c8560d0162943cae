// Promises of the settings that need nothing but themselves.
#include "settings/config.hpp"

#include <gtest/gtest.h>

namespace param_sync {
namespace {

TEST(Config, NodesThatAProgramStartsShareAGpuAndNobodyElse) {
  Config config;
  config.nodes = 4;
  EXPECT_TRUE(config.shares_gpu("cuda"));
  EXPECT_FALSE(config.shares_gpu("cpu")) << "processes of the CPU device run side by side";
  Config one = config, by_hand = config, launched = config, serial = config;
  one.nodes = 1;
  by_hand.rank = 0;
  launched.launch = bootstrap::Launch{};
  serial.serial = true;
  for (const Config& other : {one, by_hand, launched, serial}) EXPECT_FALSE(other.shares_gpu("cuda"));
}

}  // namespace
}  // namespace param_sync
