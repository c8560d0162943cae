// Host rings of contexts for which nobody has chosen a name.
#include "host_proxy/memory/host_rings.hpp"

#include "gpusock/error.hpp"
#include "gpusock/gpusock.hpp"
#include "host_proxy/base/descriptor.hpp"
#include "tests/support/error_of.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace gpusock::test {
namespace {

namespace fs = std::filesystem;

/// In a network namespace of its own, the name is nobody else's.
class AutomaticHostRings : public testing::Test {
 protected:
  AutomaticHostRings() {
    if (outside_.get() >= 0 && unshare(CLONE_NEWNET) == 0) path_ = proxy::HostRings::path_of("auto");
    options_.sockets_max = 4;
    options_.connections_max = 2;
    options_.ring_bytes = 4 << 10;
    options_.observe.clear();
  }
  ~AutomaticHostRings() override {
    if (path_.empty()) return;
    EXPECT_FALSE(fs::exists(path_));
    EXPECT_EQ(setns(outside_.get(), CLONE_NEWNET), 0);
  }
  void SetUp() override {
    if (path_.empty()) GTEST_SKIP() << "no network namespace can be made here";
    EXPECT_FALSE(fs::exists(path_));
  }

  proxy::Descriptor outside_{open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)};
  std::string path_;
  Options options_;
};

TEST_F(AutomaticHostRings, AreThereWithoutAnyChoice) {
  const Context context(options_);
  const auto look = proxy::HostRings::look_at(path_);
  ASSERT_TRUE(look);
  EXPECT_TRUE(look->has_users);
  EXPECT_EQ(look->connections, proxy::HostRings::kConnectionsDefault);
  EXPECT_EQ(look->room_bytes, 1u << 20) << "one context's small rings are no limit for all others";
  EXPECT_EQ(look->members.size(), 1u);
}

TEST_F(AutomaticHostRings, AreNotMadeForNobody) {
  options_.p2p = false;
  const Context alone(options_);
  options_.p2p = true;
  options_.host_rings.clear();
  const Context off(options_);
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(AutomaticHostRings, AreDoneWithoutWhereTheyCannotBeMade) {
  const std::string named = proxy::HostRings::path_of("named");
  for (const std::string& path : {path_, named}) ASSERT_TRUE(fs::create_directory(path));
  EXPECT_EQ(error_of([&] { Context{options_}; }), "");
  options_.host_rings = "named";
  EXPECT_NE(error_of<Error>([&] { Context{options_}; }), "") << "what was asked for is not left out";
  for (const std::string& path : {path_, named}) EXPECT_TRUE(fs::remove(path));
}

}  // namespace
}  // namespace gpusock::test
