// gpusock-doctor on machines that are made of files: what each lacks is found, and what fixes it is said.
#include "tests/support/folder.hpp"

#include "gpusock/tools/doctor/probes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

namespace gpusock::doctor {
namespace {

using test::Folder;

constexpr const char* kModuleVersion =
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: gcc 12.2\n";

Gpu good_gpu() { return {"NVIDIA H100", "0000:17:00.0", 9, 0, false, true, true, true, true}; }

/// A machine at which all is well: two processors, no GPU, a network. Tests take something away or add something.
struct Machine {
  Machine() {
    write("sys/devices/system/cpu/online", "0-1\n");
    write("proc/self/status", "Name:\tx\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n");
    write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Imaginary 9000\n");
    for (int i = 0; i < 2; ++i) {
      const std::string cpu = "sys/devices/system/cpu/cpu" + std::to_string(i) + "/cache/";
      write_cache(cpu + "index0/", "1", "Data", "32K", std::to_string(i));
      write_cache(cpu + "index1/", "1", "Instruction", "64K", std::to_string(i));
      write_cache(cpu + "index2/", "3", "Unified", "8192K", "0-1");
    }
    write_limits("1048576", "unlimited");
    sources.root = folder.path();
    sources.cuda = [this] { return cuda; };
    sources.library = [this](const char* name) { return libraries.contains(name); };
    sources.list_providers = [this] { return providers; };
    sources.fabric_providers = [this](const std::string& wanted) {
      std::vector<std::string> names;
      for (const std::string& name : fabric_providers) {
        if (wanted.empty() || name == wanted) names.push_back(name);
      }
      return names;
    };
    sources.interfaces = [this] { return interfaces; };
    sources.space = [this](const std::string&) { return space; };
    sources.make_memory_file = [this] { return memory_files; };
    sources.host_rings = [this](const std::string&) { return host_rings(); };
    sources.environment = [this](const char* name) {
      const auto found = environment.find(name);
      return found == environment.end() ? std::nullopt : std::optional(found->second);
    };
    sources.variables = [this] {
      std::vector<std::string> all;
      for (const auto& [name, value] : environment) all.push_back(name + "=" + value);
      return all;
    };
  }
  void write(const std::string& name, const std::string& text) const { folder.write(name, text); }
  void write_cache(const std::string& at, const char* level, const char* type, const char* size,
                   const std::string& shared) const {
    write(at + "level", level + std::string("\n"));
    write(at + "type", type + std::string("\n"));
    write(at + "size", size + std::string("\n"));
    write(at + "shared_cpu_list", shared + "\n");
  }
  void write_limits(const std::string& files, const std::string& locked) const {
    write("proc/self/limits",
          "Limit                     Soft Limit           Hard Limit           Units     \n"
          "Max open files            " +
              files +
              "  1048576  files     \n"
              "Max locked memory         " +
              locked + "  unlimited  bytes     \n");
  }
  void add_gpu_on_bus() const {
    write("sys/bus/pci/devices/0000:17:00.0/vendor", "0x10de\n");
    write("sys/bus/pci/devices/0000:17:00.0/class", "0x030200\n");
  }
  void add_gpu() {
    add_gpu_on_bus();
    write("proc/driver/nvidia/version", kModuleVersion);
    cuda = {true, "", 12040, {good_gpu()}};
  }
  void add_nic() const {
    write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
    write("sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
    write("sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n");
  }
  Report examine() const { return doctor::examine(sources); }

  Folder folder;
  Sources sources;
  Cuda cuda;
  std::map<std::string, int> libraries;
  std::string providers;
  std::vector<std::string> fabric_providers;
  std::vector<Interface> interfaces{{"eth0", false, true, 1500, 10000}, {"lo", true, true, 65536, 0}};
  std::optional<Space> space = Space{1u << 30, 2u << 30};
  bool memory_files = true;
  std::map<std::string, std::string> environment;
  std::function<std::optional<proxy::HostRings::Look>()> host_rings = [] {
    return std::optional<proxy::HostRings::Look>();
  };
};

/// All that is to be fixed, as "topic: says > command" lines.
std::string to_mend(const Report& report) {
  std::string all;
  for (const Finding& finding : report.findings) {
    if (finding.level == Level::fix) all += finding.topic + ": " + finding.says + " > " + finding.command + "\n";
  }
  return all;
}

Finding find(const Report& report, const std::string& topic) {
  const auto found = std::find_if(report.findings.begin(), report.findings.end(),
                                  [&](const Finding& finding) { return finding.topic == topic; });
  return found == report.findings.end() ? Finding{} : *found;
}

const LinkChoice& link(const Report& report, const std::string& peer) {
  return *std::find_if(report.links.begin(), report.links.end(),
                       [&](const LinkChoice& choice) { return choice.peer == peer; });
}

/// The page with one space for each gap: lines are wrapped anywhere.
std::string words_of_page(const Report& report) {
  std::istringstream words(make_page(report));
  std::string text;
  for (std::string word; words >> word;) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// One thing to fix, that says this and names this command.
void expect_mend(const Report& report, const std::string& says, const std::string& command) {
  const std::string all = to_mend(report);
  EXPECT_FALSE(report.well());
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 1) << all;
  EXPECT_NE(all.find(says), std::string::npos) << all;
  EXPECT_NE(all.find(command), std::string::npos) << all;
}

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

TEST(Doctor, AGpuWithoutADriverIsFoundOnTheBus) {
  Machine machine;
  machine.add_gpu_on_bus();
  expect_mend(machine.examine(), "driver is not loaded", "nvidia-driver");
}

TEST(Doctor, ADriverWithoutItsLibraryIsFound) {
  Machine machine;
  machine.add_gpu();
  machine.cuda = {};
  expect_mend(machine.examine(), "libcuda.so.1", "--gpus all");
}

TEST(Doctor, ADriverThatDoesNotStartIsFoundWithItsError) {
  Machine machine;
  machine.add_gpu();
  machine.cuda = {true, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", 12040, {}};
  expect_mend(machine.examine(), "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "nvidia-smi");
  machine.cuda.error.clear();
  expect_mend(machine.examine(), "shows no GPU", "nvidia-smi");
}

TEST(Doctor, AnOldDriverIsFoundWithItsVersion) {
  Machine machine;
  machine.add_gpu();
  machine.sources.built_for = "cuda";
  EXPECT_EQ(find(machine.examine(), "driver").says, "driver 550.54.15 for CUDA 12.4");
  EXPECT_TRUE(machine.examine().well()) << to_mend(machine.examine());
  machine.cuda.version = 12020;
  expect_mend(machine.examine(), "driver 550.54.15 for CUDA 12.2: programs need CUDA 12.4", "550");
}

TEST(Doctor, ABuildThatDoesNotFitTheMachineIsFound) {
  Machine machine;
  machine.sources.built_for = "cuda";
  const Report without = machine.examine();
  expect_mend(without, "there is no NVIDIA GPU", "./run build host");
  for (const LinkChoice& choice : without.links) EXPECT_EQ(choice.link, "none");
  machine.sources.built_for = "cpu";
  machine.add_gpu();
  expect_mend(machine.examine(), "build is for the CPU device", "./run build cuda");
}

TEST(Doctor, AGpuThatProgramsCannotUseIsFound) {
  Machine machine;
  machine.sources.built_for = "cuda";
  machine.add_gpu();
  machine.cuda.gpus[0].capability_major = 7;
  machine.cuda.gpus[0].capability_minor = 5;
  expect_mend(machine.examine(), "older than sm_80", "GPUSOCK_CUDA_ARCHITECTURES=75");
  machine.cuda.gpus[0] = good_gpu();
  machine.cuda.gpus[0].same_address = false;
  expect_mend(machine.examine(), "host addresses", "GPUSOCK_GPU");
}

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
  EXPECT_EQ(link(report, "other host").words, "device memory, where the proxy posts them");
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

TEST(Doctor, AGpuThatTheShapeDoesNotHaveIsToBeMended) {
  Machine machine;
  machine.environment["GPUSOCK_GPU"] = "7";
  EXPECT_TRUE(machine.examine().well()) << "the CPU device by itself has no GPUs";
  for (const char* shape : {"gpu", "gpus-apart"}) {
    machine.environment["GPUSOCK_CPU_SHAPE"] = shape;
    machine.environment["GPUSOCK_GPU"] = "2";
    expect_mend(machine.examine(), "GPUSOCK_GPU=2, but the GPUs of this shape are 0 to 1", "export GPUSOCK_GPU=0");
    machine.environment["GPUSOCK_GPU"] = "1";
    EXPECT_TRUE(machine.examine().well());
  }
}

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

TEST(Doctor, WhatIsNearTheGpuIsSaid) {
  Machine machine;
  machine.add_gpu();
  EXPECT_EQ(find(machine.examine(), "affinity").says, "") << "a machine that does not say";
  machine.write("sys/bus/pci/devices/0000:17:00.0/numa_node", "1\n");
  machine.write("sys/bus/pci/devices/0000:17:00.0/local_cpulist", "16-31\n");
  EXPECT_EQ(find(machine.examine(), "affinity").says, "GPU 0 is on NUMA node 1, as are processors 16-31");
  machine.add_nic();
  machine.write("sys/class/infiniband/mlx5_0/device/numa_node", "0\n");
  const Finding far = find(machine.examine(), "affinity");
  EXPECT_EQ(far.level, Level::note);
  EXPECT_NE(far.says.find("farther: mlx5_0 (node 0)"), std::string::npos) << far.says;
  machine.write("sys/class/infiniband/mlx5_1/device/numa_node", "1\n");
  const Finding near = find(machine.examine(), "affinity");
  EXPECT_EQ(near.level, Level::fine);
  EXPECT_NE(near.says.find("processors 16-31 and mlx5_1; farther: mlx5_0 (node 0)"), std::string::npos) << near.says;
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

TEST(Doctor, SaysWhetherProcessesTakeTurnsOnAGpu) {
  Machine machine;
  machine.sources.built_for = "cuda";
  machine.add_gpu();
  EXPECT_EQ(find(machine.examine(), "mps").level, Level::note);
  EXPECT_EQ(find(machine.examine(), "mps").command, "nvidia-cuda-mps-control -d");
  machine.write("tmp/nvidia-mps/control", "");
  EXPECT_EQ(find(machine.examine(), "mps").level, Level::fine);
  machine.environment["CUDA_MPS_PIPE_DIRECTORY"] = "/run/mps";
  EXPECT_EQ(find(machine.examine(), "mps").level, Level::note) << "the daemon's folder is another one";
  machine.write("run/mps/control", "");
  EXPECT_EQ(find(machine.examine(), "mps").level, Level::fine);
  machine.environment["CUDA_MPS_PIPE_DIRECTORY"] = "";
  machine.examine();
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
  EXPECT_EQ(words_for("other host"), "device memory, where the proxy posts them");
  machine.environment["GPUSOCK_WORDS"] = "host";
  EXPECT_EQ(words_for("other host"), "pinned host memory");
  machine.environment["GPUSOCK_WORDS"] = "gpu";
  expect_mend(machine.examine(), "GPUSOCK_WORDS='gpu' must be auto, host or device", "unset GPUSOCK_WORDS");
}

TEST(Doctor, WithoutMemoryFilesThereAreNoLinks) {
  Machine machine;
  machine.memory_files = false;
  const Report report = machine.examine();
  expect_mend(report, "memfd_create", "seccomp");
  for (const LinkChoice& choice : report.links) EXPECT_EQ(choice.link, "none");
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

TEST(Doctor, WhatCudaReadsAndKernelsThatWaitDoNotBearIsSaid) {
  Machine machine;
  machine.environment["CUDA_LAUNCH_BLOCKING"] = "1";
  machine.environment["CUDA_MODULE_LOADING"] = "LAZY";
  machine.environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "1";
  EXPECT_EQ(find(machine.examine(), "environment").says, "") << "the CPU device does not read them";
  machine.sources.built_for = "cuda";
  machine.add_gpu();
  expect_mend(machine.examine(), "CUDA_LAUNCH_BLOCKING='1' makes programs wait for the end of each kernel",
              "unset CUDA_LAUNCH_BLOCKING");
  machine.environment["CUDA_LAUNCH_BLOCKING"] = "0";
  EXPECT_TRUE(machine.examine().well());
  EXPECT_EQ(find(machine.examine(), "environment").command, "export CUDA_MODULE_LOADING=EAGER");
  machine.environment["CUDA_MODULE_LOADING"] = "EAGER";
  EXPECT_EQ(find(machine.examine(), "environment").command, "unset CUDA_DEVICE_MAX_CONNECTIONS");
  EXPECT_NE(find(machine.examine(), "environment").says.find("='1': a process may use so many streams"),
            std::string::npos);
  for (const char* const none : {"0", "-1", "33", "many", "8 or so"}) {
    machine.environment["CUDA_DEVICE_MAX_CONNECTIONS"] = none;
    const auto found = find(machine.examine(), "environment");
    EXPECT_NE(found.says.find(std::string("='") + none + "' is no number from 1 to 32"), std::string::npos)
        << found.says;
    EXPECT_EQ(found.command, "unset CUDA_DEVICE_MAX_CONNECTIONS");
  }
  machine.environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "32";
  EXPECT_EQ(find(machine.examine(), "environment").says, "");
}

TEST(Doctor, WhichGpusReachEachOthersMemoryIsSaid) {
  Machine machine;
  machine.sources.built_for = "cuda";
  machine.add_gpu();
  EXPECT_EQ(words_of_page(machine.examine()).find("each other's memory"), std::string::npos);
  machine.cuda.gpus.push_back(good_gpu());
  EXPECT_NE(words_of_page(machine.examine()).find("GPUs 0 and 1 do not reach each other's memory"), std::string::npos);
  machine.cuda.gpus[0].peers = {1};
  EXPECT_NE(words_of_page(machine.examine()).find("GPUs 0 and 1 do not reach each other's memory"), std::string::npos);
  machine.cuda.gpus[1].peers = {0};
  const Report report = machine.examine();
  EXPECT_NE(words_of_page(report).find("the GPUs reach each other's memory"), std::string::npos);
  EXPECT_EQ(link(report, "same process").words,
            "device memory between kernels of GPUs that reach each other (else pinned host memory)");
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
}  // namespace gpusock::doctor
