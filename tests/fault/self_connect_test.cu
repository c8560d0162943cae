// A socket that the operating system connects to itself.
#include "network.hpp"

#include "tests/support/patience.hpp"

#include <gpusock/gpusock.hpp>

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace gpusock::fault::self_connect {
namespace {

constexpr const char* kPortRange = "/proc/sys/net/ipv4/ip_local_port_range";

std::string read_range() {
  char text[64] = "";
  std::FILE* file = std::fopen(kPortRange, "r");
  if (file == nullptr || std::fgets(text, sizeof text, file) == nullptr) text[0] = 0;
  if (file != nullptr) std::fclose(file);
  return text;
}

bool write_range(const std::string& range) {
  std::FILE* file = std::fopen(kPortRange, "w");
  if (file == nullptr) return false;
  const bool written = std::fputs(range.c_str(), file) >= 0;
  return std::fclose(file) == 0 && written;
}

__global__ void connect(Net net, Endpoint to, Socket* result) { *result = net.connect(this_thread(), to, patience()); }

class SelfConnect : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!has_own_network()) GTEST_SKIP() << "this process may not have a network of its own";
    ASSERT_TRUE(write_range("40000 40000"));  // a connection can have no other port
  }
  void TearDown() override {
    const bool restored = !has_own_network() || write_range(before_);
    EXPECT_TRUE(restored);
  }

  std::string before_ = read_range();
};

TEST_P(SelfConnect, IsRefusedAsWhereNobodyListens) {
  Context context;
  Mapped<Socket> result(context, 1);
  for (int time = 0; time < 2; ++time) {                    // the first one does not keep the port
    for (const char* link : {",link=tcp", ",link=auto"}) {  // and no handshake with itself
      const Endpoint nobody = Endpoint::parse(std::string(GetParam()) + ":40000" + link);
      launch(context, {}, connect, context.net(), nobody, result.data());
      context.synchronize();
      EXPECT_EQ(result[0], -ECONNREFUSED) << link;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Addresses, SelfConnect, testing::Values("127.0.0.1", "[::1]"),
                         [](const auto& address) { return std::string(address.param[0] == '[' ? "v6" : "v4"); });

}  // namespace
}  // namespace gpusock::fault::self_connect
