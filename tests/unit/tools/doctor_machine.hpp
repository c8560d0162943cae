#pragma once
// Machines that are made of files, for tests of gpusock-doctor: it must find what each lacks, and say what mends it.
#include "tests/support/folder.hpp"

#include "gpusock/tools/doctor/probes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace gpusock::doctor_test {

using namespace doctor;
using test::Folder;

inline constexpr const char* kModuleVersion =
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: gcc 12.2\n";

inline Gpu good_gpu() { return {"NVIDIA H100", "0000:17:00.0", 9, 0, false, true, true, true, true}; }

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
inline std::string to_mend(const Report& report) {
  std::string all;
  for (const Finding& finding : report.findings) {
    if (finding.level == Level::fix) all += finding.topic + ": " + finding.says + " > " + finding.command + "\n";
  }
  return all;
}

inline Finding find(const Report& report, const std::string& topic) {
  const auto found = std::find_if(report.findings.begin(), report.findings.end(),
                                  [&](const Finding& finding) { return finding.topic == topic; });
  return found == report.findings.end() ? Finding{} : *found;
}

inline const LinkChoice& link(const Report& report, const std::string& peer) {
  return *std::find_if(report.links.begin(), report.links.end(),
                       [&](const LinkChoice& choice) { return choice.peer == peer; });
}

/// The page with one space for each gap: lines are wrapped anywhere.
inline std::string words_of_page(const Report& report) {
  std::istringstream words(make_page(report));
  std::string text;
  for (std::string word; words >> word;) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// One thing to fix, that says this and names this command.
inline void expect_mend(const Report& report, const std::string& says, const std::string& command) {
  const std::string all = to_mend(report);
  EXPECT_FALSE(report.well());
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 1) << all;
  EXPECT_NE(all.find(says), std::string::npos) << all;
  EXPECT_NE(all.find(command), std::string::npos) << all;
}

}  // namespace gpusock::doctor_test
