// The texts of clocks.
#include "param_sync/store/clock/clock.hpp"
#include "tests/support/error_of.hpp"

#include <gtest/gtest.h>

#include <string>

namespace {

using gpusock::test::error_of;
using param_sync::Async;
using param_sync::Backup;
using param_sync::Bsp;
using param_sync::clock_of;
using param_sync::Coded;
using param_sync::Ssp;

TEST(Clocks, HaveTexts) {
  EXPECT_TRUE(std::holds_alternative<Bsp>(clock_of("bsp")));
  EXPECT_TRUE(std::holds_alternative<Bsp>(clock_of("ssp:0")));
  EXPECT_TRUE(std::holds_alternative<Async>(clock_of("async")));
  EXPECT_EQ(std::get<Ssp>(clock_of("ssp:3")).staleness, 3);
  EXPECT_EQ(std::get<Ssp>(clock_of("ssp:4294967296")).staleness, std::uint64_t{1} << 32);
  EXPECT_EQ(std::get<Backup>(clock_of("backup:2")).backups, 2);
  EXPECT_EQ(std::get<Backup>(clock_of("backup:2")).grace_ns, 0);
  EXPECT_EQ(std::get<Backup>(clock_of("backup:3,50")).backups, 3);
  EXPECT_EQ(std::get<Backup>(clock_of("backup:3,50")).grace_ns, 50'000'000);
  EXPECT_EQ(std::get<Coded>(clock_of("coded:63")).stragglers, 63);
  EXPECT_TRUE(std::holds_alternative<Bsp>(clock_of("backup:0")));
  EXPECT_TRUE(std::holds_alternative<Bsp>(clock_of("coded:0")));
}

TEST(Clocks, OtherTextsAreRefused) {
  for (const std::string text : {"",
                                 "BSP",
                                 "ssp",
                                 "ssp:",
                                 "ssp:-1",
                                 "ssp:4294967297",
                                 "ssp:99999999999999999999",
                                 "ssp:1x",
                                 "async:1",
                                 "bsp ",
                                 "backup",
                                 "backup:",
                                 "backup:64",
                                 "backup:-1",
                                 "backup:1,",
                                 "backup:,5",
                                 "backup:1,2,3",
                                 "backup:1,-2",
                                 "coded:1,2",
                                 "coded:64"}) {
    EXPECT_NE(error_of([&] { clock_of(text); }).find("there is no clock \"" + text + "\""), std::string::npos) << text;
  }
}

}  // namespace
