// With libfabric itself, and providers that need no hardware: what a key is good for.
#include "gpusock/error.hpp"
#include "host_proxy/links/fabric/libfabric_port.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::proxy::fabric {
namespace {

/// Somebody else's endpoint.
struct Writer {
  explicit Writer(FabricDomain& domain) : port(domain.open_port()) {
    int error = 0;
    source = port->register_memory(bytes, FabricAccess::local_source, error);
    EXPECT_NE(source, nullptr) << error;
  }
  /// Starts to write to this endpoint, under the key of this memory; false while it cannot.
  bool write(const FabricPort& target, const FabricRegistration& memory, std::uint32_t data) {
    FabricWrite write;
    EXPECT_EQ(port->add_peer(target.address(), write.peer), 0);
    write.from = bytes.data();
    write.bytes = bytes.size();
    write.source = source.get();
    write.address = memory.address();
    write.key = memory.key();
    write.data = data;
    const int result = port->write(write);
    EXPECT_TRUE(result == 0 || result == -EAGAIN) << result;
    return result == 0;
  }

  std::vector<std::byte> bytes = std::vector<std::byte>(64, std::byte{7});
  std::unique_ptr<FabricPort> port;
  std::unique_ptr<FabricRegistration> source;
};

class FabricKeys : public testing::TestWithParam<const char*> {};

/// Two endpoints of one context, as it has them for two peers. The first of these peers writes with its own key where
/// the second's does.
TEST_P(FabricKeys, AreGoodAtTheirOwnEndpointAlone) {
  const Endpoint local = Endpoint::parse("127.0.0.1:0");
  const FabricProviders providers(GetParam());
  const auto names = providers.names_for(local);
  if (names.empty()) GTEST_SKIP() << providers.problem(local);
  const auto own = providers.open(names[0], local), others = providers.open(names[0], local);
  std::unique_ptr<FabricPort> ports[] = {own->open_port(), own->open_port()};
  Writer liar(*others), honest(*others);
  std::vector<std::byte> memory[2] = {std::vector<std::byte>(4096), std::vector<std::byte>(4096)};
  std::unique_ptr<FabricRegistration> granted[2];
  int error = 0;
  for (int i = 0; i < 2; ++i) {
    granted[i] = ports[i]->register_memory(memory[i], FabricAccess::remote_target, error);
    ASSERT_NE(granted[i], nullptr) << error;
  }

  std::vector<Completion> arrived[2], written;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto step_until = [&](const auto& holds) {
    while (!holds() && std::chrono::steady_clock::now() < until) {
      for (int i = 0; i < 2; ++i) ports[i]->read(arrived[i]);
      for (Writer* writer : {&liar, &honest}) writer->port->read(written);
    }
  };
  const auto count = [&](int port, std::uint32_t data) {
    return std::count_if(arrived[port].begin(), arrived[port].end(), [data](const Completion& each) {
      return each.kind == Completion::Kind::arrived && static_cast<std::uint32_t>(each.data) == data;
    });
  };
  step_until([&] { return liar.write(*ports[0], *granted[0], 1); });
  step_until([&] { return count(0, 1) != 0; });
  EXPECT_EQ(count(0, 1), 1) << "where the key is good";
  step_until([&] { return liar.write(*ports[1], *granted[0], 2); });
  step_until([&] { return honest.write(*ports[1], *granted[1], 3); });
  step_until([&] { return count(1, 3) != 0; });
  int reads = 0;
  step_until([&] { return ++reads > 1000; });  // what would be told late
  EXPECT_EQ(count(1, 3), 1) << "the honest peer is kept out";
  EXPECT_EQ(memory[1][63], std::byte{7});
  EXPECT_EQ(count(1, 2), 0) << "what a peer has a key for was told to another peer's endpoint";
}

INSTANTIATE_TEST_SUITE_P(Providers, FabricKeys, testing::Values("tcp;ofi_rxm", "tcp", "shm"), [](const auto& provider) {
  const std::string name = provider.param;
  return name == "tcp;ofi_rxm" ? "tcp_ofi_rxm" : name;
});

}  // namespace
}  // namespace gpusock::proxy::fabric
