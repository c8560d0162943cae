// What gpusock-doctor says of rings that processes share, and of where rings and words lie.
#include "tests/unit/tools/doctor_machine.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace gpusock::doctor_test {
namespace {

TEST(Doctor, ProcessesOnAGpuWithoutHostRingsUseTcpAndItSaysWhy) {
  Machine machine;
  machine.sources.built_for = "cuda";
  machine.add_gpu();
  machine.environment["GPUSOCK_HOST_RINGS"] = "off";
  const Report report = machine.examine();
  EXPECT_EQ(link(report, "same process").link, "p2p");
  EXPECT_EQ(link(report, "same host").link, "tcp");
  EXPECT_NE(link(report, "same host").why.find("not p2p"), std::string::npos);
  EXPECT_FALSE(link(report, "same host").command.empty());
  for (const char* peer : {"same host", "other host"}) {
    EXPECT_EQ(link(report, peer).rings, "pinned host memory, 1 MiB each");
    EXPECT_EQ(link(report, peer).words, "pinned host memory");
  }
}

TEST(Doctor, ProcessesOnAGpuShareRingsByName) {
  Machine machine;
  machine.sources.built_for = "cuda";
  machine.add_gpu();
  machine.environment["GPUSOCK_HOST_RINGS"] = "job,connections=8";
  const Report report = machine.examine();
  EXPECT_EQ(link(report, "same host").link, "p2p");
  EXPECT_NE(link(report, "same host").why.find("GPUSOCK_HOST_RINGS=job, for 8 connections"), std::string::npos);
  EXPECT_TRUE(link(report, "same host").rings.starts_with("device memory between kernels of one GPU"));
  machine.environment["GPUSOCK_RING"] = "host";
  EXPECT_EQ(link(machine.examine(), "same host").rings, "pinned host memory, shared by name");
  machine.environment.erase("GPUSOCK_RING");
  machine.environment["GPUSOCK_HOST_RINGS"] = "a b";
  expect_mend(machine.examine(), "GPUSOCK_HOST_RINGS='a b'", "unset GPUSOCK_HOST_RINGS");
}

TEST(Doctor, HostRingsThatAreThereAreDescribed) {
  Machine machine;
  machine.sources.built_for = "cuda";
  machine.add_gpu();
  machine.environment["GPUSOCK_HOST_RINGS"] = "off";
  EXPECT_EQ(find(machine.examine(), "host-rings").says, "");
  machine.environment["GPUSOCK_HOST_RINGS"] = "job,connections=8";
  EXPECT_EQ(find(machine.examine(), "host-rings").says, "'job': not there yet; the first context makes them");
  EXPECT_NE(make_json(machine.examine()).find("\"host_rings\": null"), std::string::npos);

  proxy::HostRings::Look look{
      .connections = 8, .in_use = 3, .left_by_dead = 1, .room_bytes = 1 << 20, .has_users = true};
  look.members = {{"0000:17:00.0", 8 << 20, 0}, {"0000:17:00.0", 8 << 20, 1}, {"0000:65:00.0", 4 << 20, 0}};
  machine.host_rings = [&] { return std::optional(look); };
  const Report report = machine.examine();
  EXPECT_EQ(
      find(report, "host-rings").says,
      "'job': 3 of 8 connections are in use (1 left by processes that died, free within a second of the next use), "
      "rings of up to 1 MiB; 3 of at most 64 contexts share memory of their GPU (2 on 0000:17:00.0, 1 on "
      "0000:65:00.0)");
  EXPECT_TRUE(report.well()) << to_mend(report);
  EXPECT_NE(link(report, "same host").why.find("for 8 connections at a time;"), std::string::npos);
  const std::string json = make_json(report);
  for (const char* part : {"\"in_use\": 3", "\"fits\": true", "\"device\": \"0000:65:00.0\"", "\"reaches\": 1"}) {
    EXPECT_NE(json.find(part), std::string::npos) << json;
  }
  look.has_users = false;
  EXPECT_EQ(find(machine.examine(), "host-rings").says, "'job': all users have died; the next context makes new ones");
}

TEST(Doctor, HostRingsThatNobodyNamedAreThereOnAGpu) {
  Machine machine;
  EXPECT_EQ(find(machine.examine(), "host-rings").says, "") << "the CPU device needs none";
  machine.environment["GPUSOCK_HOST_RINGS"] = "auto";
  EXPECT_EQ(find(machine.examine(), "host-rings").says, "");
  machine.environment.clear();
  machine.environment["GPUSOCK_CPU_SHAPE"] = "gpu";
  const Report report = machine.examine();
  EXPECT_EQ(find(report, "host-rings").says, "'auto': not there yet; the first context makes them");
  EXPECT_EQ(link(report, "same host").link, "p2p");
  EXPECT_NE(link(report, "same host").why.find("GPUSOCK_HOST_RINGS=auto, for 16 connections"), std::string::npos);
  machine.host_rings = []() -> std::optional<proxy::HostRings::Look> { throw Error(EPROTO, "reading it"); };
  const Report without = machine.examine();
  EXPECT_TRUE(without.well()) << "contexts are made all the same: " << to_mend(without);
  EXPECT_NE(find(without, "host-rings").says.find("other processes are reached by tcp"), std::string::npos);
  EXPECT_EQ(link(without, "same host").link, "tcp");
}

TEST(Doctor, HostRingsThatDoNotFitAreToldWithWhatToDo) {
  Machine machine;
  machine.environment["GPUSOCK_CPU_SHAPE"] = "gpu";
  machine.environment["GPUSOCK_HOST_RINGS"] = "job,connections=8";
  proxy::HostRings::Look look{.connections = 2, .in_use = 2, .room_bytes = 64 << 10, .has_users = true};
  machine.host_rings = [&] { return std::optional(look); };
  expect_mend(machine.examine(), "rings of 1 MiB, the default of this build, do not fit there",
              "Options::ring_bytes to 65536");
  EXPECT_NE(make_json(machine.examine()).find("\"fits\": false"), std::string::npos);
  const std::string page = make_page(machine.examine());
  EXPECT_NE(page.find("connections=8 changes nothing"), std::string::npos) << page;
  EXPECT_NE(page.find("GPUSOCK_HOST_RINGS=job,connections=4"), std::string::npos) << "all are in use: " << page;
  look = {.connections = 8, .room_bytes = 1 << 20, .has_users = true};
  EXPECT_TRUE(machine.examine().well());
  look.members.resize(proxy::Arenas::kMembersMax);
  EXPECT_NE(make_page(machine.examine()).find("shares host memory alone"), std::string::npos);
  machine.host_rings = []() -> std::optional<proxy::HostRings::Look> { throw Error(EPROTO, "reading it"); };
  expect_mend(machine.examine(), "reading it", "export GPUSOCK_HOST_RINGS=NAME");
}

TEST(Doctor, ProcessesInTheShapeOfAGpuDoNotMapEachOthersRings) {
  Machine machine;
  machine.environment["GPUSOCK_HOST_RINGS"] = "job";
  EXPECT_EQ(link(machine.examine(), "same host").why.find("job"), std::string::npos) << "which needs no name";
  machine.environment["GPUSOCK_CPU_SHAPE"] = "gpu";
  EXPECT_EQ(link(machine.examine(), "same host").link, "p2p");
  EXPECT_NE(link(machine.examine(), "same host").why.find("GPUSOCK_HOST_RINGS=job, for 16 conn"), std::string::npos);
  EXPECT_EQ(link(machine.examine(), "same host").words,
            "device memory between kernels of one GPU (else pinned host memory)");
  machine.environment["GPUSOCK_HOST_RINGS"] = "off";
  EXPECT_EQ(link(machine.examine(), "same process").link, "p2p");
  EXPECT_EQ(link(machine.examine(), "same host").link, "tcp");
  EXPECT_NE(link(machine.examine(), "same host").command.find("GPUSOCK_HOST_RINGS=NAME"), std::string::npos);
  machine.environment["GPUSOCK_CPU_SHAPE"] = "round";
  expect_mend(machine.examine(), "GPUSOCK_CPU_SHAPE='round'", "unset GPUSOCK_CPU_SHAPE");
  machine.environment["GPUSOCK_CPU_SHAPE"] = "cpu";
  machine.environment["GPUSOCK_CPU_GROUP_CALLS"] = "some";
  expect_mend(machine.examine(), "GPUSOCK_CPU_GROUP_CALLS='some'", "unset GPUSOCK_CPU_GROUP_CALLS");
}

/// gpu_shape_test (Rings.…) says where a context puts them.
TEST(Doctor, WhereRingsAndWordsLieInTheShapeOfAGpuIsSaid) {
  Machine machine;
  machine.environment["GPUSOCK_CPU_SHAPE"] = "gpu";
  Report report = machine.examine();
  constexpr const char* kBetweenGpus =
      "device memory between kernels of GPUs that reach each other (else pinned host memory)";
  constexpr const char* kBetweenKernels = "device memory between kernels of one GPU (else pinned host memory)";
  EXPECT_EQ(link(report, "same process").rings, std::string(kBetweenGpus) + ", 1 MiB each");
  EXPECT_EQ(link(report, "same process").words, kBetweenGpus);
  EXPECT_EQ(link(report, "same host").rings, std::string(kBetweenKernels) + ", shared by name");
  EXPECT_EQ(link(report, "other host").rings, "pinned host memory, 1 MiB each");
  EXPECT_EQ(link(report, "other host").words, "device memory, by BAR writes of the proxy");
  machine.environment["GPUSOCK_CPU_SHAPE"] = "gpus-apart";
  EXPECT_EQ(link(machine.examine(), "same process").rings, std::string(kBetweenKernels) + ", 1 MiB each");
  machine.environment["GPUSOCK_RING"] = "host";
  EXPECT_EQ(link(machine.examine(), "same process").rings, "pinned host memory, 1 MiB each");
  EXPECT_EQ(link(machine.examine(), "same process").words, "pinned host memory") << "kernels write them";
  machine.environment["GPUSOCK_WORDS"] = "host";
  EXPECT_EQ(link(machine.examine(), "other host").words, "pinned host memory");
  machine.environment["GPUSOCK_CPU_SHAPE"] = "cpu";
  EXPECT_EQ(link(machine.examine(), "other host").rings, "host memory, 256 KiB each");
}

TEST(Doctor, SaysWhereKernelsPollTheProxysWords) {
  Machine machine;
  machine.sources.built_for = "cuda";
  machine.add_gpu();
  const auto words_for = [&](const char* peer) { return link(machine.examine(), peer).words; };
  EXPECT_EQ(find(machine.examine(), "words").level, Level::note);
  EXPECT_NE(find(machine.examine(), "words").says.find("in host memory: the GPU does not say"), std::string::npos);
  EXPECT_EQ(words_for("other host"), "pinned host memory");
  machine.cuda.gpus[0].orders_nic_writes = true;
  EXPECT_NE(find(machine.examine(), "words").command.find("install GDRCopy"), std::string::npos);
  machine.libraries["libgdrapi.so.2"] = 1;
  EXPECT_EQ(find(machine.examine(), "words").command, "modprobe gdrdrv");
  machine.environment["GPUSOCK_WORDS"] = "device";
  expect_mend(machine.examine(), "GPUSOCK_WORDS=device: no context can be made", "modprobe gdrdrv");
  machine.write("dev/gdrdrv", "");
  Report report = machine.examine();
  EXPECT_TRUE(report.well());
  EXPECT_EQ(find(report, "words").level, Level::fine);
  EXPECT_EQ(words_for("other host"), "device memory, by BAR writes of the proxy");
  machine.environment["GPUSOCK_WORDS"] = "host";
  EXPECT_EQ(words_for("other host"), "pinned host memory");
  machine.environment["GPUSOCK_WORDS"] = "gpu";
  expect_mend(machine.examine(), "GPUSOCK_WORDS='gpu' must be auto, host or device", "unset GPUSOCK_WORDS");
}

TEST(Doctor, WhereRingsLieIsSaidAndWhy) {
  Machine machine;
  machine.environment["GPUSOCK_RING"] = "device";
  const Report report = machine.examine();
  EXPECT_EQ(link(report, "same host").rings, "the CPU device's memory, 2 MiB each");
  EXPECT_NE(link(report, "same host").why.find("GPUSOCK_RING=device"), std::string::npos);
  EXPECT_NE(link(report, "other host").why.find("staging"), std::string::npos);
  machine.environment["GPUSOCK_RING"] = "attic";
  expect_mend(machine.examine(), "attic", "unset GPUSOCK_RING");
  EXPECT_EQ(link(machine.examine(), "same host").link, "none");
}

TEST(Doctor, WhereAutoPutsRingsAndWordsOnAGpuIsSaid) {
  Machine machine;
  machine.sources.built_for = "cuda";
  machine.sources.verbs_built = true;
  machine.add_gpu();
  machine.add_nic();
  Report report = machine.examine();
  constexpr const char* kBetweenKernels = "device memory between kernels of one GPU (else pinned host memory)";
  EXPECT_EQ(link(report, "same process").rings, std::string(kBetweenKernels) + ", 1 MiB each");
  EXPECT_EQ(link(report, "same process").words, kBetweenKernels);
  EXPECT_EQ(link(report, "other host").rings, "device memory (host threads': pinned host memory), 1 MiB each");
  EXPECT_EQ(link(report, "other host").words, "pinned host memory");
  EXPECT_NE(words_of_page(report).find("words in device memory between"), std::string::npos);
  machine.cuda.gpus[0].orders_nic_writes = true;
  EXPECT_EQ(link(machine.examine(), "other host").words,
            "device memory (that of rx rings; the others are in pinned host memory)");
  EXPECT_NE(make_json(report).find("\"words\": \"device memory between"), std::string::npos);
  machine.environment["GPUSOCK_GPUDIRECT"] = "off";
  EXPECT_EQ(link(machine.examine(), "other host").rings, "pinned host memory, 1 MiB each");
  EXPECT_EQ(link(machine.examine(), "other host").words, "pinned host memory");
  machine.environment["GPUSOCK_RING"] = "host";
  report = machine.examine();
  EXPECT_EQ(link(report, "same process").rings, "pinned host memory, 1 MiB each");
  EXPECT_EQ(link(report, "same process").words, "pinned host memory");
  machine.environment = {{"GPUSOCK_HOST_RINGS", "job"}, {"GPUSOCK_RING", "host"}};
  EXPECT_EQ(link(machine.examine(), "same host").words, "pinned host memory");
}

TEST(Doctor, WhetherNicsUseRingsInDeviceMemoryIsSaid) {
  Machine machine;
  machine.sources.verbs_built = true;
  machine.add_nic();
  machine.environment["GPUSOCK_RING"] = "device";
  const auto says = [&](const std::string& text) {
    return link(machine.examine(), "other host").why.find(text) != std::string::npos;
  };
  EXPECT_TRUE(says("the NICs read and write them"));
  machine.sources.built_for = "cuda";
  machine.add_gpu();
  EXPECT_TRUE(says("the NICs read and write them"));
  machine.environment["GPUSOCK_GPUDIRECT"] = "off";
  EXPECT_TRUE(says("GPUSOCK_GPUDIRECT=off has them copied"));
  machine.environment["GPUSOCK_GPUDIRECT"] = "auto";
  machine.cuda.gpus[0].dmabuf = false;
  EXPECT_TRUE(says("verbs copies them through staging memory"));
  machine.environment["GPUSOCK_GPUDIRECT"] = "perhaps";
  expect_mend(machine.examine(), "perhaps", "unset GPUSOCK_GPUDIRECT");
  EXPECT_EQ(link(machine.examine(), "same host").link, "none");
}

}  // namespace
}  // namespace gpusock::doctor_test
