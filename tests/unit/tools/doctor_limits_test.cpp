// What gpusock-doctor says of processors, limits, folders and environment variables.
#include "tests/unit/tools/doctor_machine.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gpusock::doctor_test {
namespace {

TEST(Doctor, ProcessorsAreThoseThatThisProcessMayUse) {
  Machine machine;
  EXPECT_EQ(find(machine.examine(), "processors").says,
            "2 of 2 processors, Imaginary 9000; callers that wait run the proxy's step themselves");
  EXPECT_EQ(find(machine.examine(), "caches").says, "L1 32K each, L3 8192K shared by 0-1");
  machine.write("proc/self/status", "Cpus_allowed_list:\t1\n");
  EXPECT_EQ(find(machine.examine(), "processors").says.substr(0, 19), "1 of 2 processors, ");
  machine.write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_NE(words_of_page(machine.examine()).find("time of 0.5 of them"), std::string::npos);
  machine.write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(words_of_page(machine.examine()).find("control group"), std::string::npos);
}

TEST(Doctor, LimitsAreComparedWithWhatAContextNeeds) {
  Machine machine;
  EXPECT_EQ(find(machine.examine(), "nofile").level, Level::fine);
  machine.write_limits("1024", "65536");
  Report report = machine.examine();
  EXPECT_TRUE(report.well());
  EXPECT_EQ(find(report, "nofile").level, Level::note);
  EXPECT_EQ(find(report, "nofile").command, "ulimit -n 65536");
  EXPECT_EQ(find(report, "memlock").level, Level::note);
  EXPECT_EQ(find(report, "memlock").says.substr(0, 21), "64 KiB may be locked:");
  machine.write_limits("64", "unlimited");
  expect_mend(machine.examine(), "64 descriptors", "ulimit -n");
  EXPECT_EQ(find(machine.examine(), "memlock").level, Level::fine);
}

TEST(Doctor, APlaceForPagesIsNeeded) {
  Machine machine;
  machine.space.reset();
  expect_mend(machine.examine(), "/dev/shm is missing or not writable", "mount -t tmpfs");
  machine.space = Space{4096, 1 << 20};
  expect_mend(machine.examine(), "/dev/shm is full", "df -h /dev/shm");
  machine.space.reset();
  machine.environment["GPUSOCK_OBSERVE"] = "/somewhere";
  expect_mend(machine.examine(), "/somewhere", "mkdir -p /somewhere");
  machine.environment["GPUSOCK_OBSERVE"] = "somewhere";
  expect_mend(machine.examine(), "absolute path", "unset GPUSOCK_OBSERVE");
  machine.environment["GPUSOCK_OBSERVE"] = "off";
  EXPECT_TRUE(machine.examine().well());
}

TEST(Doctor, WhatTheProxyDoesWhileKernelsRunIsSaid) {
  Machine machine;
  EXPECT_EQ(words_of_page(machine.examine()).find("while kernels run"), std::string::npos) << "these wake it";
  EXPECT_NE(words_of_page(machine.examine()).find("callers that wait run"), std::string::npos);
  machine.environment["GPUSOCK_CPU_SHAPE"] = "gpu";
  EXPECT_NE(words_of_page(machine.examine()).find("while kernels run"), std::string::npos) << "as on a GPU";
  machine.environment.clear();
  machine.sources.built_for = "cuda";
  machine.add_gpu();
  EXPECT_EQ(words_of_page(machine.examine()).find("callers that wait run"), std::string::npos) << "not on a GPU";
  EXPECT_NE(find(machine.examine(), "proxy").says.find("takes up to 1 ms to see what they do (at most 4"),
            std::string::npos);
  machine.environment["GPUSOCK_SPIN"] = "on";
  EXPECT_NE(find(machine.examine(), "proxy").says.find("keeps a processor (GPUSOCK_SPIN"), std::string::npos);
  machine.environment["GPUSOCK_SPIN"] = "maybe";
  expect_mend(machine.examine(), "must be auto, on or off", "unset GPUSOCK_SPIN");
}

TEST(Doctor, TheEnvironmentsOtherValuesAreChecked) {
  Machine machine;
  machine.environment = {{"GPUSOCK_SECRET", "swordfish"}, {"GPUSOCK_LOG", "loud"}};
  Report report = machine.examine();
  EXPECT_TRUE(link(report, "other host").command.empty());
  EXPECT_EQ(words_of_page(report).find("swordfish"), std::string::npos) << "a secret is not shown";
  EXPECT_EQ(make_json(report).find("swordfish"), std::string::npos);
  expect_mend(report, "GPUSOCK_LOG='loud'", "unset GPUSOCK_LOG");
  machine.environment = {{"GPUSOCK_FABRIC_PROVIDER", "two names"}};
  expect_mend(machine.examine(), "'two names'", "unset GPUSOCK_FABRIC_PROVIDER");
  machine.environment = {{"GPUSOCK_GPUDIRECT", "off"}};
  EXPECT_NE(words_of_page(machine.examine()).find("GPUSOCK_GPUDIRECT=off changes nothing"), std::string::npos);
  machine.environment = {{"GPUSOCK_GPU", "first"}};
  expect_mend(machine.examine(), "'first'", "GPUSOCK_GPU=0");
  machine.environment = {{"GPUSOCK_PROCESSORS", "0-3,8"}};
  EXPECT_TRUE(machine.examine().well());
  machine.environment = {{"GPUSOCK_PROCESSORS", "all"}};
  expect_mend(machine.examine(), "'all'", "unset GPUSOCK_PROCESSORS");
  machine.environment = {{"GPUSOCK_PROCESSORS", "99"}};
  expect_mend(machine.examine(), "'99'", "unset GPUSOCK_PROCESSORS");
  machine.sources.built_for = "cuda";
  machine.add_gpu();
  machine.environment = {{"GPUSOCK_GPU", "1"}};
  expect_mend(machine.examine(), "GPUs here are 0 to 0", "GPUSOCK_GPU=0");
}

TEST(Doctor, SeesVariablesThatNothingReads) {
  Machine machine;
  machine.environment = {{"GPUSOCK_LINKS", "tcp"}, {"GPUSOCK_TEST_SCALE", "1"}, {"OTHER_LINKS", "x"}};
  std::vector<std::string> commands;
  for (const Finding& finding : machine.examine().findings) {
    if (finding.says.find("nothing reads it") == std::string::npos) continue;
    EXPECT_EQ(finding.says, "GPUSOCK_LINKS is set, but nothing reads it: did you mean GPUSOCK_LINK?");
    commands.push_back(finding.command);
  }
  EXPECT_EQ(commands, std::vector<std::string>{"unset GPUSOCK_LINKS"});
}

}  // namespace
}  // namespace gpusock::doctor_test
