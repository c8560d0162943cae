// Where the proxy's thread runs.
#include "host_proxy/base/processors.hpp"
#include "tests/support/folder.hpp"

#include <gpusock/gpusock.hpp>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace gpusock::proxy {
namespace {

namespace fs = std::filesystem;

std::string line_of(const fs::path& file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name)) return line.substr(line.find_first_not_of(" \t", name.size()));
  }
  return {};
}

/// What this process's threads of the proxy are kept on, by their numbers.
std::map<std::string, std::vector<int>> proxy_threads() {
  std::map<std::string, std::vector<int>> threads;
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    const fs::path status = task.path() / "status";
    if (line_of(status, "Name:") == "gpusock-proxy") {
      threads[task.path().filename()] = parse_processors(line_of(status, "Cpus_allowed_list:"));
    }
  }
  return threads;
}

TEST(Processors, ListsAreParsedAndNonsenseIsNone) {
  EXPECT_EQ(parse_processors("0-2,7"), (std::vector<int>{0, 1, 2, 7}));
  EXPECT_EQ(parse_processors("5"), (std::vector<int>{5}));
  for (const char* bad : {"", "x", "3-", "5-2", "-1", "0-99999999", "1;2", "99999999999999999999"}) {
    EXPECT_TRUE(parse_processors(bad).empty()) << bad;
  }
}

TEST(Processors, NearADeviceAreThoseThatLinuxSays) {
  const test::Folder root;
  root.write("sys/bus/pci/devices/0000:0a:00.0/local_cpulist", "16-18,40\n");
  EXPECT_EQ(processors_near("0000:0A:00.0", root.path()), (std::vector<int>{16, 17, 18, 40}));
  EXPECT_TRUE(processors_near("0000:0b:00.0", root.path()).empty()) << "a device that is not there";
}

TEST(Processors, WhoRunsTheProxysStepsDependsOnThemAndOnWhoCanWakeItsThread) {
  const auto expect = [](const ProxyPolicy& policy, bool assists, bool spins) {
    EXPECT_EQ(policy.assists, assists);
    EXPECT_EQ(policy.spins, spins);
  };
  expect(proxy_policy(true, kFewProcessors), true, false);
  expect(proxy_policy(true, kFewProcessors + 1), false, false);
  expect(proxy_policy(false, kFewProcessors), false, false);
  expect(proxy_policy(false, kFewProcessors + 1), false, true);
  expect(proxy_policy(true, kFewProcessors, false, true), false, false);  // there is nothing to spin for
  expect(proxy_policy(false, kFewProcessors + 1, true, false), true, false);
}

TEST(Processors, TheProxysThreadIsKeptWhereTheOptionSays) {
  const std::vector<int> allowed = parse_processors(line_of("/proc/self/status", "Cpus_allowed_list:"));
  ASSERT_FALSE(allowed.empty());
  Options options;
  for (const auto& [processors, wanted] :
       std::map<std::string, std::vector<int>>{{"near", allowed},
                                               {"any", allowed},
                                               {std::to_string(allowed.back()), {allowed.back()}},
                                               {std::to_string(allowed.front()) + ",65535", {allowed.front()}}}) {
    options.processors = processors;
    const Context context(options);
    const auto threads = proxy_threads();
    ASSERT_EQ(threads.size(), 1u) << processors;
    EXPECT_EQ(threads.begin()->second, wanted) << processors;
  }
}

}  // namespace
}  // namespace gpusock::proxy
