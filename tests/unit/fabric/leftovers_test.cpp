// With libfabric's provider shm: what killed processes leave behind is in nobody's way.
#include "host_proxy/links/fabric/libfabric_port.hpp"
#include "tests/support/shm_leftovers.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::proxy::fabric {
namespace {

TEST(FabricLeftovers, AFileOfAKilledProcessThatHadThisOnesNumberKeepsNoEndpointFromOpening) {
  const Endpoint local = Endpoint::parse("127.0.0.1:0");
  const FabricProviders providers("shm");
  const auto names = providers.names_for(local);
  if (names.empty()) GTEST_SKIP() << providers.problem(local);
  const auto domain = providers.open(names[0], local);
  const auto before = shm_files_of(getpid());
  const auto first = domain->open_port();
  const auto now = shm_files_of(getpid());
  const auto mine = std::find_if(now.begin(), now.end(),
                                 [&](const auto& file) { return std::count(before.begin(), before.end(), file) == 0; });
  ASSERT_NE(mine, now.end()) << "libfabric names its files otherwise now";
  const std::string name = mine->string();
  const std::size_t number_at = name.rfind(':') + 1;
  const int number = std::stoi(name.substr(number_at));
  std::vector<std::string> taken;
  for (int next = 1; next <= 3; ++next) {  // as the one that lives has it: with this process's number in it
    taken.push_back(name.substr(0, number_at) + std::to_string(number + next));
    std::filesystem::copy_file(*mine, taken.back());
  }
  std::unique_ptr<FabricPort> second;
  EXPECT_NO_THROW(second = domain->open_port());
  if (second != nullptr) {
    EXPECT_FALSE(std::ranges::equal(first->address(), second->address()));
  }
  std::error_code error;
  for (const std::string& file : taken) std::filesystem::remove(file, error);
}

}  // namespace
}  // namespace gpusock::proxy::fabric
