// The texts of clocks.
#include "param_sync/store/clock/clock.hpp"
#include "tests/support/error_of.hpp"

#include <gtest/gtest.h>

#include <string>

namespace {

using gpusock::test::error_of;
using param_sync::Async;
using param_sync::Bsp;
using param_sync::clock_of;
using param_sync::Ssp;

TEST(Clocks, HaveTexts) {
  EXPECT_TRUE(std::holds_alternative<Bsp>(clock_of("bsp")));
  EXPECT_TRUE(std::holds_alternative<Bsp>(clock_of("ssp:0")));
  EXPECT_TRUE(std::holds_alternative<Async>(clock_of("async")));
  EXPECT_EQ(std::get<Ssp>(clock_of("ssp:3")).staleness, 3);
  EXPECT_EQ(std::get<Ssp>(clock_of("ssp:4294967296")).staleness, std::uint64_t{1} << 32);
}

TEST(Clocks, OtherTextsAreRefused) {
  for (const std::string text : {"", "BSP", "ssp", "ssp:", "ssp:-1", "ssp:4294967297", "ssp:99999999999999999999",
                                 "ssp:1x", "async:1", "bsp "}) {
    EXPECT_NE(error_of([&] { clock_of(text); }).find("there is no clock \"" + text + "\""), std::string::npos) << text;
  }
}

}  // namespace
