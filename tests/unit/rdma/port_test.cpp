// Which port, GID, partition and MTU belong to an address, and what is said where there is none.
#include "rdma/device.hpp"
#include "tests/unit/rdma/fake_verbs.hpp"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>

namespace gpusock::rdma {
namespace {

sockaddr_storage at(const char* text) {
  sockaddr_storage storage{};
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(storage);
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(storage);
  if (inet_pton(AF_INET, text, &ipv4.sin_addr) == 1) {
    ipv4.sin_family = AF_INET;
  } else {
    ipv6 = {};
    EXPECT_EQ(inet_pton(AF_INET6, text, &ipv6.sin6_addr), 1);
    ipv6.sin6_family = AF_INET6;
  }
  return storage;
}
const sockaddr& view(const sockaddr_storage& storage) { return reinterpret_cast<const sockaddr&>(storage); }

ibv_gid_entry entry(std::uint32_t index, const char* gid, ibv_gid_type type, std::uint32_t port = 1) {
  ibv_gid_entry made{};
  made.gid_index = index;
  made.port_num = port;
  made.gid_type = static_cast<std::uint32_t>(type);
  EXPECT_EQ(inet_pton(AF_INET6, gid, made.gid.raw), 1);
  return made;
}

class PortTest : public testing::Test {
 protected:
  PortTest() { fake::reset(); }
  std::string reason_;
};

const std::vector<ibv_gid_entry> kTable = {
    entry(0, "fe80::1", IBV_GID_TYPE_ROCE_V2), entry(1, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V1),
    entry(2, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2, 2), entry(3, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2),
    entry(4, "2001:db8::7", IBV_GID_TYPE_ROCE_V2)};

TEST_F(PortTest, TheGidIsTheAddressOnRoceV2OfThatPort) {
  EXPECT_EQ(choose_gid(kTable, 1, view(at("10.0.0.1")))->gid_index, 3u);
  EXPECT_EQ(choose_gid(kTable, 2, view(at("10.0.0.1")))->gid_index, 2u);
  EXPECT_EQ(choose_gid(kTable, 1, view(at("2001:db8::7")))->gid_index, 4u);
  EXPECT_FALSE(choose_gid(kTable, 1, view(at("10.0.0.2"))));
}

TEST_F(PortTest, LoopbackTakesIpv4BeforeIpv6) {
  EXPECT_EQ(choose_gid(kTable, 1, view(at("127.0.0.1")))->gid_index, 3u);
  EXPECT_EQ(choose_gid(std::span(kTable).first(1), 1, view(at("::1")))->gid_index, 0u);
}

TEST_F(PortTest, AnAddressLeadsToItsDevice) {
  const auto port_id = find_port(view(at("10.77.0.1")), reason_);
  ASSERT_TRUE(port_id) << reason_;
  EXPECT_EQ(port_id->device, "fake0");
  const Device device(*port_id, view(at("10.77.0.1")));
  EXPECT_EQ(device.port().gid_index, 1);
  EXPECT_EQ(device.port().mtu, IBV_MTU_4096);
  EXPECT_TRUE(device.port().ethernet);
}

TEST_F(PortTest, ReasonsWhereThereIsNone) {
  EXPECT_FALSE(find_port(view(at("10.77.0.2")), reason_));
  EXPECT_NE(reason_.find("10.77.0.2"), std::string::npos) << reason_;
  fake::nic().devices = 0;
  EXPECT_FALSE(find_port(view(at("10.77.0.1")), reason_));
  EXPECT_EQ(reason_, "this machine has no RDMA device");
  EXPECT_FALSE(find_port(view(at("127.0.0.1")), reason_));
  EXPECT_EQ(reason_, "this machine has no RDMA device");
}

/// Else it would be taken for a machine without devices.
TEST_F(PortTest, ALackOfMemoryIsNoLackOfDevices) {
  const auto error_at = [&](const char* address) {
    try {
      find_port(view(at(address)), reason_);
    } catch (const std::system_error& error) {
      return error.code().value();
    }
    return 0;
  };
  fake::nic().asking_fails = ENOMEM;
  EXPECT_EQ(error_at("10.77.0.1"), ENOMEM);
  EXPECT_EQ(error_at("127.0.0.1"), ENOMEM);
  fake::nic().asking_fails = EMFILE;
  EXPECT_EQ(error_at("10.77.0.1"), EMFILE);
  fake::nic().asking_fails = 0;
  fake::nic().query_port_fails = ENOMEM;
  EXPECT_EQ(error_at("127.0.0.1"), ENOMEM);
  fake::nic().query_device_fails = ENOMEM;
  EXPECT_EQ(error_at("127.0.0.1"), ENOMEM);
  fake::nic().query_device_fails = fake::nic().query_port_fails = EIO;  // another device may answer
  EXPECT_EQ(error_at("127.0.0.1"), 0);
}

TEST_F(PortTest, ALackOfMemoryIsNoLackOfAddresses) {
  fake::nic().query_gids_fails = ENOMEM;
  try {
    describe_port(ibv_open_device(nullptr), {"fake0", 1, 0}, view(at("10.77.0.1")));
    FAIL() << "described";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), ENOMEM) << error.what();
  }
}

TEST_F(PortTest, LoopbackTakesThePortThatIsUp) {
  EXPECT_TRUE(find_port(view(at("127.0.0.1")), reason_));
  fake::nic().state = IBV_PORT_DOWN;
  EXPECT_FALSE(find_port(view(at("127.0.0.1")), reason_));
  EXPECT_NE(reason_.find("is up"), std::string::npos) << reason_;
}

TEST_F(PortTest, APortThatIsDownOrHasNoAddressSaysSo) {
  fake::nic().state = IBV_PORT_DOWN;
  EXPECT_THROW(Device({"fake0", 1, 0}, view(at("10.77.0.1"))), std::system_error);
  fake::nic().state = IBV_PORT_ACTIVE;
  EXPECT_THROW(Device({"fake0", 1, 0}, view(at("10.77.0.9"))), std::system_error);
  EXPECT_THROW(Device({"fake1", 1, 0}, view(at("10.77.0.1"))), std::system_error);
}

TEST_F(PortTest, ThePartitionIsFoundWhateverTheMembership) {
  fake::nic().pkeys = {0xffff, 0x0012, 0x8034};
  EXPECT_EQ(Device({"fake0", 1, 0}, view(at("10.77.0.1"))).port().pkey_index, 0);
  EXPECT_EQ(Device({"fake0", 1, 0x8012}, view(at("10.77.0.1"))).port().pkey_index, 1);
  EXPECT_EQ(Device({"fake0", 1, 0x0034}, view(at("10.77.0.1"))).port().pkey_index, 2);
}

}  // namespace
}  // namespace gpusock::rdma
