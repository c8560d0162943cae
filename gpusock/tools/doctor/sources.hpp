#pragma once
/// @file The sources of gpusock-doctor: the machine, or what a test puts in its place. A missing thing is a finding,
/// not an error.

#include "host_proxy/base/cpu_shape.hpp"
#include "host_proxy/memory/host_rings.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpusock::doctor {

/// A GPU as the CUDA driver describes it.
struct Gpu {
  std::string name;
  std::string pci;  ///< "0000:17:00.0"
  int capability_major = 0;
  int capability_minor = 0;
  bool host_atomics = false;  ///< true if it has native atomics on host memory
  bool same_address = false;  ///< true if it uses host addresses of pinned memory, which rings need
  bool dmabuf = false;
  bool gpudirect_rdma = false;
  bool sees_nic_writes = false;    ///< true if it is known when kernels see what a NIC has written there
  bool orders_nic_writes = false;  ///< true if kernels see that in the order in which the NIC has written it
  std::vector<int> peers = {};     ///< numbers of the other GPUs whose memory it reaches
};

struct Cuda {
  bool library = false;  ///< true if there is a libcuda
  std::string error;     ///< why it does not work; empty: it does
  int version = 0;       ///< as cuDriverGetVersion: 12040 is 12.4
  std::vector<Gpu> gpus;
};

struct Space {
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
};

/// A network interface of this process's network namespace.
struct Interface {
  std::string name;
  bool loopback = false;
  bool up = false;      ///< true if it is enabled, and has a carrier (if its driver knows)
  long mtu = 0;         ///< 0: unknown
  long mbit_per_s = 0;  ///< 0: unknown
};

struct Sources {
  std::filesystem::path root = "/";  ///< /sys, /proc and /dev lie in it
  std::string built_for = "cpu";     ///< "cpu" or "cuda"
  bool verbs_built = false;          ///< true if this build has the link
  bool fabric_built = false;
  std::function<Cuda()> cuda;
  std::function<bool(const char* name)> library;  ///< true if it can be loaded
  std::function<std::string()> list_providers;    ///< what `fi_info -l` prints
  /// The providers that the fabric link takes for GPUSOCK_FABRIC_PROVIDER=wanted, best first. An empty `wanted` means
  /// that the variable is not set.
  std::function<std::vector<std::string>(const std::string& wanted)> fabric_providers;
  std::function<std::vector<Interface>()> interfaces;                    ///< sorted by name
  std::function<std::optional<Space>(const std::string& folder)> space;  ///< nothing if it is not writable
  std::function<bool()> make_memory_file;                                ///< memfd_create, with seals
  std::function<std::optional<std::string>(const char* name)> environment;
  std::function<std::vector<std::string>()> variables;  ///< all of the environment, as NAME=value
  /// Looks at the host rings of this name, as HostRings::look_at().
  std::function<std::optional<proxy::HostRings::Look>(const std::string& name)> host_rings;

  /// The sources of the machine on which this runs.
  static Sources of_this_machine();

  /// The first line of a file below root; "" if there is none.
  std::string line(const std::string& path) const;
  /// Up to 1 MiB of a file below root.
  std::string text(const std::string& path) const;
  /// The names in a folder below root, sorted.
  std::vector<std::string> names(const std::string& path) const;
  bool exists(const std::string& path) const;
};

/// Asks libcuda, which is loaded at run time (cuda_driver.cpp).
Cuda ask_cuda_driver();

/// The interfaces of this process's network namespace (interfaces.cpp). /sys shows those of the namespace where it was
/// mounted.
std::vector<Interface> ask_interfaces();

/// The shape of this build's CPU device; CpuShape::cpu also for a build for GPUs, and if GPUSOCK_CPU_SHAPE is invalid.
proxy::CpuShape shape_of(const Sources& sources);

/// The value of "Name:   value" in a text of such lines; "" if there is none.
std::string value_of(const std::string& text, std::string_view name);

/// The number in `text`; nothing if the whole text is not a number.
std::optional<unsigned> number_of(const std::string& text);

}  // namespace gpusock::doctor
