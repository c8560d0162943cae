// gpusock-doctor's page as a whole: on machines where all is well, and on empty ones.
#include "tests/unit/tools/doctor_machine.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace gpusock::doctor_test {
namespace {

TEST(Doctor, ALaptopWithoutAGpuIsWell) {
  const Report report = Machine().examine();
  EXPECT_TRUE(report.well()) << to_mend(report);
  EXPECT_EQ(link(report, "same process").link, "p2p");
  EXPECT_EQ(link(report, "same host").link, "p2p");
  EXPECT_EQ(link(report, "other host").link, "tcp");
  EXPECT_NE(link(report, "other host").why.find("has no verbs link"), std::string::npos);
  EXPECT_NE(link(report, "other host").command.find("GPUSOCK_SECRET"), std::string::npos);
  EXPECT_NE(words_of_page(report).find("All is well."), std::string::npos);
}

TEST(Doctor, LinesFitATerminalButForCommandsToCopy) {
  const Report report = Machine().examine();
  std::istringstream page(make_page(report));
  for (std::string line; std::getline(page, line);) {
    EXPECT_TRUE(line.size() <= 80 || line.find("  > ") != std::string::npos) << line;
  }
  const std::string all = words_of_page(report);
  for (const Finding& finding : report.findings) EXPECT_NE(all.find(finding.says), std::string::npos) << finding.says;
}

TEST(Doctor, AnEmptyMachineIsExaminedToo) {
  Machine machine;
  machine.sources.root = "/nonexistent";
  machine.memory_files = false;
  machine.space.reset();
  const Report report = machine.examine();
  EXPECT_FALSE(report.well());
  EXPECT_EQ(report.links.size(), 3u);
  EXPECT_FALSE(words_of_page(report).empty());
}

TEST(Doctor, EverythingToMendNamesACommand) {
  Machine machine;
  machine.memory_files = false;
  machine.space.reset();
  machine.write_limits("10", "10");
  machine.interfaces[1].up = false;
  machine.add_gpu_on_bus();
  machine.environment = {{"GPUSOCK_LINK", "x"}, {"GPUSOCK_GPU", "x"}};
  const Report report = machine.examine();
  int count = 0;
  for (const Finding& finding : report.findings) {
    if (finding.level != Level::fix) continue;
    ++count;
    EXPECT_FALSE(finding.command.empty()) << finding.says;
  }
  EXPECT_EQ(count, 7);
  EXPECT_NE(words_of_page(report).find("7 thing(s) to fix."), std::string::npos);
}

}  // namespace
}  // namespace gpusock::doctor_test
