// What gpusock-doctor says of links: which one each peer gets, RDMA, libfabric and the network.
#include "tests/unit/tools/doctor_machine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace gpusock::doctor_test {
namespace {

/// With and without an RDMA NIC, and where too little memory may be locked for it.
TEST(Doctor, AnRdmaNicIsUsedWhereItsMemoryMayBeLocked) {
  Machine machine;
  machine.sources.verbs_built = machine.sources.fabric_built = true;
  machine.libraries = {{"libfabric.so.1", 1}, {"libibverbs.so.1", 1}};
  machine.write_limits("65536", "unlimited");
  Report report = machine.examine();
  EXPECT_EQ(link(report, "other host").link, "tcp");
  EXPECT_NE(link(report, "other host").why.find("there is no RDMA NIC"), std::string::npos);
  machine.add_nic();
  report = machine.examine();
  EXPECT_EQ(link(report, "other host").link, "verbs");
  EXPECT_EQ(link(report, "other host").rings, "host memory that the NICs write, 2 MiB each");
  EXPECT_EQ(link(report, "same host").link, "p2p");
  machine.write_limits("65536", "65536");
  report = machine.examine();
  EXPECT_EQ(link(report, "other host").link, "tcp");
  EXPECT_NE(link(report, "other host").why.find("only 64 KiB of memory may be locked"), std::string::npos);
  EXPECT_EQ(link(report, "other host").command, "ulimit -l unlimited");
  machine.write("proc/self/status", "CapEff:\t000001ffffffffff\n");
  EXPECT_EQ(link(machine.examine(), "other host").link, "verbs") << "whoever has CAP_IPC_LOCK is not limited";
}

TEST(Doctor, ALinkThatIsNamedIsTakenWhereItCanBe) {
  Machine machine;
  machine.environment["GPUSOCK_LINK"] = "fabric";
  EXPECT_EQ(link(machine.examine(), "other host").link, "none");
  machine.sources.fabric_built = true;
  machine.libraries = {{"libfabric.so.1", 1}};
  EXPECT_EQ(link(machine.examine(), "same host").link, "fabric");
  machine.environment["GPUSOCK_LINK"] = "verbs";
  EXPECT_NE(link(machine.examine(), "same process").why.find("GPUSOCK_LINK=verbs does not reach"), std::string::npos);
}

TEST(Doctor, ALinkThatIsNamedAndReachesNobodyIsToBeMended) {
  Machine machine;
  machine.environment["GPUSOCK_LINK"] = "verbs";
  expect_mend(machine.examine(), "GPUSOCK_LINK=verbs, but this build has no verbs link", "unset GPUSOCK_LINK");
  EXPECT_EQ(link(machine.examine(), "same host").rings, "") << "no link, no rings";
  machine.sources.verbs_built = true;
  expect_mend(machine.examine(), "GPUSOCK_LINK=verbs, but there is no RDMA NIC", "unset GPUSOCK_LINK");
  machine.add_nic();
  EXPECT_TRUE(machine.examine().well());
  machine.write_limits("1048576", "65536");
  expect_mend(machine.examine(), "GPUSOCK_LINK=verbs, but only 64 KiB of memory may be locked", "ulimit -l unlimited");
  machine.environment["GPUSOCK_LINK"] = "fabric";
  expect_mend(machine.examine(), "GPUSOCK_LINK=fabric, but this build has no fabric link", "unset GPUSOCK_LINK");
  machine.sources.fabric_built = true;
  expect_mend(machine.examine(), "GPUSOCK_LINK=fabric, but libfabric is not installed", "unset GPUSOCK_LINK");
}

/// Whatever the variables are, on a machine with and without what they need.
TEST(Doctor, AllIsNotWellWhereNoPeerGetsALink) {
  const std::pair<const char*, std::vector<const char*>> variables[] = {
      // what each other one is tried beside comes first
      {"GPUSOCK_LINK", {"", "auto", "p2p", "verbs", "fabric", "tcp", "x"}},
      {"GPUSOCK_RING", {"", "host", "device", "x"}},
      {"GPUSOCK_GPUDIRECT", {"", "off", "x"}},
      {"GPUSOCK_FABRIC_PROVIDER", {"", "tcp", "tpc", "two names"}},
      {"GPUSOCK_SPIN", {"", "x"}},
      {"GPUSOCK_LOG", {"", "x"}},
  };
  for (const bool equipped : {false, true}) {
    Machine machine;
    if (equipped) {
      machine.sources.verbs_built = machine.sources.fabric_built = true;
      machine.libraries = {{"libfabric.so.1", 1}};
      machine.fabric_providers = {"shm", "tcp"};
      machine.add_nic();
    }
    for (const auto& [first, first_values] : variables) {
      for (const auto& [second, second_values] : {variables[0]}) {
        for (const char* a : first_values) {
          for (const char* b : second_values) {
            machine.environment.clear();
            if (*b != 0) machine.environment[second] = b;
            if (*a != 0) machine.environment[first] = a;
            const Report report = machine.examine();
            const bool none = std::all_of(report.links.begin(), report.links.end(),
                                          [](const LinkChoice& choice) { return choice.link == "none"; });
            EXPECT_FALSE(none && report.well()) << first << '=' << a << ' ' << second << '=' << b;
          }
        }
      }
    }
  }
}

TEST(Doctor, AProviderOfLibfabricThatIsNotHereIsFound) {
  Machine machine;
  machine.environment["GPUSOCK_FABRIC_PROVIDER"] = "tpc";
  EXPECT_TRUE(machine.examine().well()) << "without the link it does no harm";
  EXPECT_NE(words_of_page(machine.examine()).find("changes nothing: this build has no fabric link"), std::string::npos);
  machine.sources.fabric_built = true;
  EXPECT_NE(words_of_page(machine.examine()).find("changes nothing: libfabric is not installed"), std::string::npos);
  machine.libraries = {{"libfabric.so.1", 1}};
  expect_mend(machine.examine(), "'tpc' names no provider of libfabric that the fabric link has here; there is none",
              "unset GPUSOCK_FABRIC_PROVIDER");
  machine.fabric_providers = {"shm", "tcp"};
  expect_mend(machine.examine(), "there are: shm tcp", "unset GPUSOCK_FABRIC_PROVIDER");
  EXPECT_EQ(link(machine.examine(), "other host").link, "tcp") << "peers that name no link do without";
  machine.environment["GPUSOCK_LINK"] = "fabric";
  EXPECT_EQ(link(machine.examine(), "same host").link, "none");
  EXPECT_NE(link(machine.examine(), "same host").why.find("GPUSOCK_FABRIC_PROVIDER names no provider"),
            std::string::npos);
}

TEST(Doctor, AProviderThatIsNamedIsTakenRatherThanTcp) {
  Machine machine;
  machine.sources.fabric_built = true;
  machine.libraries = {{"libfabric.so.1", 1}};
  machine.fabric_providers = {"shm", "tcp"};
  EXPECT_EQ(link(machine.examine(), "other host").link, "tcp");
  machine.environment["GPUSOCK_FABRIC_PROVIDER"] = "tcp";
  EXPECT_TRUE(machine.examine().well());
  EXPECT_EQ(link(machine.examine(), "other host").link, "fabric");
  EXPECT_NE(link(machine.examine(), "other host").why.find("GPUSOCK_FABRIC_PROVIDER=tcp"), std::string::npos);
  EXPECT_EQ(link(machine.examine(), "same host").link, "p2p");
  machine.environment["GPUSOCK_FABRIC_PROVIDER"] = "shm";
  EXPECT_EQ(link(machine.examine(), "other host").link, "tcp") << "which it cannot reach";
}

TEST(Doctor, RdmaOfABuildWithoutItsLinkIsSeen) {
  Machine machine;
  machine.sources.built_for = "cuda";
  machine.add_gpu();
  machine.add_nic();
  machine.libraries = {{"libfabric.so.1", 1}, {"libibverbs.so.1", 1}};
  machine.providers = "tcp:\n    version: 117.0\nverbs;ofi_rxm:\n    version: 117.0\n\n";
  Report report = machine.examine();
  EXPECT_EQ(find(report, "rdma").says, "mlx5_0 (InfiniBand, 400 Gb/sec (4X NDR), ACTIVE)");
  EXPECT_EQ(find(report, "libraries").says,
            "libibverbs found, and this build has no link for it; libfabric found with tcp verbs;ofi_rxm, and this "
            "build has no "
            "link for it");
  EXPECT_NE(link(report, "other host").why.find("not verbs: this build"), std::string::npos);
  EXPECT_EQ(link(report, "other host").link, "tcp");
  EXPECT_EQ(find(report, "peermem").says, "RDMA NICs reach the GPU's memory by dmabuf");
  machine.cuda.gpus[0].dmabuf = false;
  report = machine.examine();
  EXPECT_EQ(find(report, "peermem").level, Level::note);
  EXPECT_EQ(find(report, "peermem").command, "modprobe nvidia-peermem");
  EXPECT_TRUE(report.well()) << "nothing that works today suffers";
  machine.write("sys/module/nvidia_peermem/version", "1\n");
  EXPECT_EQ(find(machine.examine(), "peermem").says, "RDMA NICs reach the GPU's memory by nvidia-peermem");
  machine.cuda.gpus[0].sees_nic_writes = false;
  EXPECT_EQ(find(machine.examine(), "peermem").level, Level::note);
  EXPECT_NE(find(machine.examine(), "peermem").says.find("nothing says when"), std::string::npos);
}

TEST(Doctor, WithoutMemoryFilesThereAreNoLinks) {
  Machine machine;
  machine.memory_files = false;
  const Report report = machine.examine();
  expect_mend(report, "memfd_create", "seccomp");
  for (const LinkChoice& choice : report.links) EXPECT_EQ(choice.link, "none");
}

TEST(Doctor, ALoopbackThatIsDownIsFound) {
  Machine machine;
  machine.interfaces[1].up = false;
  const Report report = machine.examine();
  expect_mend(report, "loopback", "ip link set lo up");
  EXPECT_EQ(link(report, "same host").link, "none");
  EXPECT_EQ(link(report, "other host").link, "tcp");
}

TEST(Doctor, WithoutANetworkNoOtherHostIsReached) {
  Machine machine;
  machine.interfaces[0].up = false;
  const Report report = machine.examine();
  EXPECT_TRUE(report.well());
  EXPECT_EQ(link(report, "other host").link, "none");
  EXPECT_EQ(link(report, "same host").link, "p2p");
}

TEST(Doctor, TheEnvironmentsChoiceOfLinkIsSaid) {
  Machine machine;
  machine.environment["GPUSOCK_LINK"] = "tcp";
  Report report = machine.examine();
  EXPECT_EQ(link(report, "same host").link, "tcp");
  EXPECT_EQ(link(report, "same host").rings, "host memory, 256 KiB each");
  EXPECT_EQ(link(report, "same host").command, "unset GPUSOCK_LINK");
  machine.environment["GPUSOCK_LINK"] = "p2p";
  EXPECT_EQ(link(machine.examine(), "same host").link, "p2p");
  EXPECT_EQ(link(machine.examine(), "other host").link, "none");
  machine.environment["GPUSOCK_LINK"] = "carrier-pigeon";
  expect_mend(machine.examine(), "carrier-pigeon", "unset GPUSOCK_LINK");
  EXPECT_EQ(link(machine.examine(), "same host").link, "none");
}

}  // namespace
}  // namespace gpusock::doctor_test
