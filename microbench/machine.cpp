#include "machine.hpp"

#include <gpusock/gpusock.hpp>

#include <sched.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <ctime>
#include <fstream>

namespace bench {
namespace {

std::string read_cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0 || line.rfind("Model", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

unsigned count_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set)) : 0;
}

std::string read_kernel() {
  utsname name{};
  uname(&name);
  return std::string(name.sysname) + ' ' + name.release + ' ' + name.machine;
}

std::string read_date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

}  // namespace

MachineFacts read_machine_facts([[maybe_unused]] int gpu) {
  MachineFacts facts;
  facts.cpu_model = read_cpu_model();
  facts.cores = count_cores();
  facts.kernel = read_kernel();
  facts.compiler = compiler();
  facts.date = read_date();
  double load = 0;
  if (getloadavg(&load, 1) == 1) facts.load = load;
#if defined(GPUSOCK_DEVICE_CUDA)
  cudaDeviceProp properties{};
  facts.device_kind = "gpu";
  facts.device_name = cudaGetDeviceProperties(&properties, gpu) == cudaSuccess ? properties.name : "unknown GPU";
#else
  facts.device_kind = "cpu";
  facts.device_name = facts.cpu_model;
#endif
  return facts;
}

}  // namespace bench
