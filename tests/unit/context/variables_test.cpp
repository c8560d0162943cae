// A misspelt variable is told of, those that there are and those of others are not.
#include "host_proxy/base/variables.hpp"

#include <gpusock/gpusock.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace gpusock::proxy {
namespace {

TEST(Variables, AMisspeltOneIsNamedWithTheOneThatWasMeant) {
  EXPECT_EQ(remark_on_variable("GPUSOCK_LNIK=tcp"),
            "GPUSOCK_LNIK is set, but nothing reads it: did you mean GPUSOCK_LINK?");
  EXPECT_EQ(remark_on_variable("GPUSOCK_SECRETS="),
            "GPUSOCK_SECRETS is set, but nothing reads it: did you mean GPUSOCK_SECRET?");
  EXPECT_EQ(remark_on_variable("GPUSOCK_PROVIDER=tcp"),
            "GPUSOCK_PROVIDER is set, but nothing reads it: did you mean GPUSOCK_PROCESSORS?");
}

TEST(Variables, ASecretIsNotShown) {
  EXPECT_EQ(remark_on_variable("GPUSOCK_SECERT=hunter2")->find("hunter2"), std::string::npos);
}

TEST(Variables, KnownOnesAndThoseOfOthersAreNot) {
  for (const char* known : {"GPUSOCK_LINK=nonsense", "GPUSOCK_SECRET=x", "GPUSOCK_CPU_SHAPE=gpu", "GPUSOCK_RANK=0",
                            "GPUSOCK_TEST_SCALE=1", "GPUSOCK_TEST_WHATEVER=1", "PATH=/bin", "gpusock_link=tcp", "="}) {
    EXPECT_EQ(remark_on_variable(known), std::nullopt) << known;
  }
}

TEST(Variables, AContextWarnsOnce) {
  if (std::getenv("GPUSOCK_LOG") != nullptr) GTEST_SKIP() << "another level than the default";
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process that has made no context yet
  EXPECT_EXIT(
      {
        setenv("GPUSOCK_RINGS", "host", 1);
        { const Context first; }
        const Context second;
        std::exit(0);
      },
      testing::ExitedWithCode(0), "^[^\n]*GPUSOCK_RINGS is set, but nothing reads it: did you mean GPUSOCK_RING\\?\n$");
}

}  // namespace
}  // namespace gpusock::proxy
