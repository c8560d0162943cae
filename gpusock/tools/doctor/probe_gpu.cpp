#include "gpusock/tools/doctor/probes.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gpusock::doctor {
namespace {

constexpr int kCudaVersionMin = 12040;

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

/// Counts NVIDIA display controllers on the bus, with or without a driver.
int count_on_bus(const Sources& sources) {
  int count = 0;
  for (const std::string& device : sources.names("sys/bus/pci/devices")) {
    const std::string folder = "sys/bus/pci/devices/" + device;
    if (sources.line(folder + "/vendor") == "0x10de" && sources.line(folder + "/class").starts_with("0x03")) ++count;
  }
  return count;
}

/// Returns the version ("550.54.15") in the line by which the kernel module describes itself; "" if there is no module.
std::string module_version(const Sources& sources) {
  const std::string line = sources.line("proc/driver/nvidia/version");
  std::size_t at = 0;
  while ((at = line.find_first_of("0123456789", at)) != std::string::npos) {
    const std::size_t end = std::min(line.find_first_not_of("0123456789.", at), line.size());
    std::string word = line.substr(at, end - at);
    const bool whole = (at == 0 || line[at - 1] == ' ') && (end == line.size() || line[end] == ' ');
    if (whole && word.find('.') != std::string::npos) return word;
    at = end;
  }
  return {};
}

void report_no_gpu(const Sources& sources, const Cuda& cuda, Report& report) {
  const int on_bus = count_on_bus(sources);
  const bool module = sources.exists("proc/driver/nvidia/version");
  if (on_bus > 0 && !module) {
    report.add("gpu", Level::fix, fmt::format("{} NVIDIA GPU(s) on the bus, but the driver is not loaded", on_bus),
               "apt-get install nvidia-driver (Debian, non-free), or ubuntu-drivers install (Ubuntu); then reboot");
  } else if (module && !cuda.library) {
    report.add("gpu", Level::fix, "the driver is loaded, but libcuda.so.1 is not found here",
               "apt-get install libcuda1; in a container: run it with --gpus all");
  } else if (module) {
    report.add("gpu", Level::fix,
               cuda.error.empty() ? "the driver shows no GPU to this process"
                                  : fmt::format("the CUDA driver does not start: {}", cuda.error),
               "nvidia-smi says more; after an update of the driver: reboot; in a container: run it with --gpus all");
  } else if (sources.built_for == "cuda") {
    report.add("gpu", Level::fix, "there is no NVIDIA GPU, and this build's programs need one",
               "./run build host makes programs for the CPU device");
  } else {
    report.add("gpu", Level::fine, "there is no NVIDIA GPU: kernels run on the CPU device");
  }
}

void report_gpu(const Sources& sources, const Gpu& gpu, std::size_t number, Report& report) {
  report.add(
      "gpu", Level::fine,
      fmt::format("GPU {}: {}, sm_{}{}, {}{}; dmabuf {}, GPUDirect RDMA {}", number, gpu.name, gpu.capability_major,
                  gpu.capability_minor, gpu.pci, gpu.host_atomics ? ", native atomics on host memory" : "",
                  gpu.dmabuf ? "yes" : "no", gpu.gpudirect_rdma ? "yes" : "no"));
  if (sources.built_for != "cuda") return;
  if (gpu.capability_major < 8) {
    report.add("gpu", Level::fix, fmt::format("GPU {} is older than sm_80, which programs are built for", number),
               fmt::format("cmake --preset cuda -DGPUSOCK_CUDA_ARCHITECTURES={}{}", gpu.capability_major,
                           gpu.capability_minor));
  }
  if (!gpu.same_address) {
    report.add("gpu", Level::fix,
               fmt::format("GPU {} cannot use host addresses of pinned memory, which rings need", number),
               "export GPUSOCK_GPU=NUMBER of another GPU, or ./run build host");
  }
}

/// Reports which GPUs' kernels reach each other's memory, which rings between two GPUs use.
void report_peers(const std::vector<Gpu>& gpus, Report& report) {
  std::vector<std::string> apart;
  const auto reaches = [&](std::size_t from, std::size_t to) {
    const std::vector<int>& peers = gpus[from].peers;
    return std::find(peers.begin(), peers.end(), static_cast<int>(to)) != peers.end();
  };
  for (std::size_t one = 0; one < gpus.size(); ++one) {
    for (std::size_t other = one + 1; other < gpus.size(); ++other) {
      if (!reaches(one, other) || !reaches(other, one)) apart.push_back(fmt::format("{} and {}", one, other));
    }
  }
  if (gpus.size() < 2) return;
  if (apart.empty()) {
    report.add(
        "gpu", Level::fine,
        "the GPUs reach each other's memory: p2p between them uses it, between processes with GPUSOCK_HOST_RINGS");
    return;
  }
  report.add("gpu", Level::note,
             fmt::format("GPUs {} do not reach each other's memory: p2p between them has its rings in host memory",
                         fmt::join(apart, ", ")),
             "export GPUSOCK_GPU=NUMBER of another GPU");
}

/// Reports on which NUMA node each GPU is, and which RDMA NICs are near it.
void report_affinity(const Sources& sources, const std::vector<Gpu>& gpus, Report& report) {
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const std::string folder = "sys/bus/pci/devices/" + gpus[i].pci;
    const std::string node = sources.line(folder + "/numa_node");
    if (node.empty() || node.starts_with('-')) continue;  // one node, or a machine that does not say
    std::vector<std::string> near, far;
    for (const std::string& nic : sources.names("sys/class/infiniband")) {
      const std::string at = sources.line("sys/class/infiniband/" + nic + "/device/numa_node");
      if (at.empty() || at.starts_with('-')) continue;
      at == node ? near.push_back(nic) : far.push_back(fmt::format("{} (node {})", nic, at));
    }
    std::string says = fmt::format("GPU {} is on NUMA node {}, as are processors {}", i, node,
                                   sources.line(folder + "/local_cpulist"));
    if (!near.empty()) says += fmt::format(" and {}", fmt::join(near, ", "));
    if (!far.empty()) says += fmt::format("; farther: {}", fmt::join(far, ", "));
    const bool none_near = near.empty() && !far.empty();
    report.add("affinity", none_near ? Level::note : Level::fine, says,
               none_near ? fmt::format("export GPUSOCK_GPU=NUMBER of a GPU on the node of {}", far.front()) : "");
  }
}

/// Reports how RDMA NICs reach the GPU's memory, which the verbs link uses if rings lie there.
void report_registration(const Sources& sources, const std::vector<Gpu>& gpus, Report& report) {
  const bool peermem = sources.exists("sys/module/nvidia_peermem") || sources.exists("sys/module/nv_peer_mem");
  const bool dmabuf = std::any_of(gpus.begin(), gpus.end(), [](const Gpu& gpu) { return gpu.dmabuf; });
  const bool seen = std::any_of(gpus.begin(), gpus.end(), [](const Gpu& gpu) { return gpu.sees_nic_writes; });
  const bool nic = !sources.names("sys/class/infiniband").empty();
  report.facts.nics_reach_gpu = (peermem || dmabuf) && seen;
  report.facts.nics_write_in_order = report.facts.nics_reach_gpu &&
                                     std::any_of(gpus.begin(), gpus.end(),
                                                 [](const Gpu& gpu) { return gpu.orders_nic_writes; });
  if (report.facts.nics_reach_gpu) {
    report.add("peermem", Level::fine,
               fmt::format("RDMA NICs reach the GPU's memory by {}", dmabuf ? "dmabuf" : "nvidia-peermem"));
  } else if (!nic) {
    report.add("peermem", Level::fine,
               fmt::format("nvidia-peermem is {}loaded; there is no RDMA NIC for it", peermem ? "" : "not "));
  } else if (!peermem && !dmabuf) {
    report.add("peermem", Level::note,
               "RDMA NICs do not reach the GPU's memory: the verbs link copies rings that lie there",
               "modprobe nvidia-peermem");
  } else {
    report.add("peermem", Level::note,
               "nothing says when kernels see what RDMA NICs write into the GPU's memory: the verbs link copies rings "
               "that lie there");
  }
}

/// Why kernels on these GPUs cannot poll words in their memory; empty if they can.
std::string words_problem(const Sources& sources, const Facts& facts, std::string& command) {
  if (!facts.sees_writes_in_order) {
    return "the GPU does not say that it sees what comes over the bus in order";
  }
  command = "install GDRCopy, then: modprobe gdrdrv";
  if (!sources.library("libgdrapi.so.2")) return "there is no GDRCopy (libgdrapi.so.2)";
  command = "modprobe gdrdrv";
  return sources.exists("dev/gdrdrv") ? "" : "the driver of GDRCopy is not loaded (/dev/gdrdrv)";
}

/// Reports whether kernels of several processes run on a GPU at the same time. That needs the Multi-Process Service,
/// whose daemon has a pipe in a folder that its clients know.
void report_processes(const Sources& sources, Report& report) {
  std::string folder = sources.environment("CUDA_MPS_PIPE_DIRECTORY").value_or("");
  if (!folder.starts_with('/')) folder = "/tmp/nvidia-mps";
  if (sources.exists(folder.substr(1) + "/control")) {
    report.add("mps", Level::fine, "kernels of several processes run on a GPU at the same time, by MPS in " + folder);
    return;
  }
  report.add(
      "mps", Level::note,
      "several processes on a GPU take turns there, one time slice each, as MPS does not run: have contexts of one "
      "process instead, or start MPS",
      "nvidia-cuda-mps-control -d");
}

void check_choice(const Sources& sources, std::size_t gpus, Report& report) {
  const auto chosen = sources.environment("GPUSOCK_GPU");
  if (!chosen) return;
  const auto number = number_of(*chosen);
  if (!number) {
    report.add("gpu", Level::fix, fmt::format("GPUSOCK_GPU='{}' is not a GPU's number", *chosen),
               "export GPUSOCK_GPU=0");
  } else if (sources.built_for == "cuda" && gpus > 0 && *number >= gpus) {
    report.add("gpu", Level::fix, fmt::format("GPUSOCK_GPU={}, but the GPUs here are 0 to {}", *number, gpus - 1),
               "export GPUSOCK_GPU=0");
  } else if (shape_of(sources) != proxy::CpuShape::cpu && *number >= proxy::kGpusOfShape) {
    report.add("gpu", Level::fix,
               fmt::format("GPUSOCK_GPU={}, but the GPUs of this shape are 0 to {}: no context can be made", *number,
                           proxy::kGpusOfShape - 1),
               "export GPUSOCK_GPU=0");
  }
}

}  // namespace

void probe_gpu(const Sources& sources, Report& report) {
  const Cuda cuda = sources.cuda();
  report.facts.gpu_build = sources.built_for == "cuda";
  report.facts.gpus = static_cast<int>(cuda.gpus.size());
  report.facts.gpu_usable = !cuda.gpus.empty();
  check_choice(sources, cuda.gpus.size(), report);
  if (cuda.gpus.empty()) {
    report_no_gpu(sources, cuda, report);
    return;
  }
  for (std::size_t i = 0; i < cuda.gpus.size(); ++i) report_gpu(sources, cuda.gpus[i], i, report);
  const std::string module = module_version(sources);
  const std::string driver = fmt::format("driver {}for CUDA {}", module.empty() ? "" : module + " ",
                                         version_text(cuda.version));
  if (cuda.version < kCudaVersionMin) {
    report.add("driver", Level::fix, driver + ": programs need CUDA 12.4", "install a driver of 550 or newer");
  } else {
    report.add("driver", Level::fine, driver);
  }
  if (sources.built_for != "cuda") {
    report.add("gpu", Level::fix, "this build is for the CPU device: its kernels do not run on the GPU",
               "./run build cuda");
  }
  report_processes(sources, report);
  report_peers(cuda.gpus, report);
  report_affinity(sources, cuda.gpus, report);
  report_registration(sources, cuda.gpus, report);
  report.facts.sees_writes_in_order = std::all_of(cuda.gpus.begin(), cuda.gpus.end(),
                                                  [](const Gpu& gpu) { return gpu.orders_nic_writes; });
}

void probe_words(const Sources& sources, Report& report) {
  if (!report.facts.gpu_build && report.facts.has_device_memory()) {
    report.facts.device_words = report.facts.words != RingPlacement::host;
  }
  if (!report.facts.gpu_build || !report.facts.gpu_usable || report.facts.words == RingPlacement::host) return;
  std::string command;
  const std::string problem = words_problem(sources, report.facts, command);
  report.facts.device_words = problem.empty();
  if (problem.empty()) {
    report.add("words", Level::fine, "kernels poll the proxy's words in the GPU's memory, by BAR writes of the proxy");
  } else if (report.facts.words == RingPlacement::device) {
    report.add("words", Level::fix, "GPUSOCK_WORDS=device: no context can be made, as " + problem,
               command.empty() ? "unset GPUSOCK_WORDS" : command);
  } else {
    report.add("words", Level::note, "kernels poll the proxy's words in host memory: " + problem, command);
  }
}

}  // namespace gpusock::doctor
