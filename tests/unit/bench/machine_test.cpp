// What the figures were measured on.
#include "microbench/machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bench {
namespace {

TEST(Machine, OneThatWasBusyIsNamedBeforeTheFigures) {
  EXPECT_EQ(warning_of_load(0.0, 2), "");
  EXPECT_EQ(warning_of_load(0.99, 2), "");
  EXPECT_THAT(warning_of_load(1.0, 2), testing::HasSubstr("load 1.00 on 2 cores"));
  EXPECT_EQ(warning_of_load(7.9, 16), "");
  EXPECT_NE(warning_of_load(8.0, 16), "");
}

}  // namespace
}  // namespace bench
