// Which of a provider's addresses is used for a connection.
#include "host_proxy/links/fabric/reach.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace gpusock::proxy::fabric {
namespace {

using Kind = ProviderAddress::Kind;

Endpoint ip(const char* text) { return Endpoint::parse(text); }

/// As verbs;ofi_rxm lists two RoCE devices: by each kind of address that they have.
std::vector<ProviderAddress> two_devices() {
  return {{Kind::ip, "rxe0", ip("10.77.0.1:0")}, {Kind::ip, "rxe0", ip("[fe80::1]:0")}, {Kind::infiniband, "rxe0", {}},
          {Kind::ip, "rxe1", ip("10.77.0.2:0")}, {Kind::ip, "rxe1", ip("[fd00::2]:0")}, {Kind::infiniband, "rxe1", {}}};
}

TEST(FabricReach, TheDeviceThatHasTheConnectionsAddress) {
  EXPECT_EQ(choose_address(two_devices(), ip("10.77.0.1:7000")), 0u);
  EXPECT_EQ(choose_address(two_devices(), ip("10.77.0.2:7000")), 3u) << "not the other device's GID, which comes first";
  EXPECT_EQ(choose_address(two_devices(), ip("[fd00::2]:7000")), 4u);
  EXPECT_EQ(choose_address(two_devices(), ip("192.0.2.1:7000")), kNowhere) << "another network";
}

TEST(FabricReach, LoopbackIsOnAnyDeviceThatHasAnAddressOfItsOwn) {
  auto addresses = two_devices();
  EXPECT_EQ(choose_address(addresses, ip("127.0.0.1:1")), 0u);
  EXPECT_EQ(choose_address(addresses, ip("[::1]:1")), 0u);
  addresses.erase(addresses.begin());
  EXPECT_EQ(choose_address(addresses, ip("127.0.0.1:1")), 2u) << "fe80:: leads nowhere without its interface";
}

TEST(FabricReach, InfiniBandWithoutIpIsReachedByItsGid) {
  const std::vector<ProviderAddress> addresses = {
      {Kind::ip, "mlx5_0", ip("10.0.0.1:0")}, {Kind::infiniband, "mlx5_0", {}}, {Kind::infiniband, "mlx5_1", {}}};
  EXPECT_EQ(choose_address(addresses, ip("192.0.2.1:7000")), 2u);
  EXPECT_EQ(choose_address(addresses, ip("10.0.0.1:7000")), 0u);
}

TEST(FabricReach, AProviderWithAddressesOfItsOwnKindServesAny) {
  const std::vector<ProviderAddress> addresses = {{Kind::own, "shm", {}}};
  EXPECT_EQ(choose_address(addresses, ip("192.0.2.1:7000")), 0u);
  EXPECT_EQ(choose_address({}, ip("192.0.2.1:7000")), kNowhere);
}

}  // namespace
}  // namespace gpusock::proxy::fabric
