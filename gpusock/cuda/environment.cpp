#include "gpusock/cuda/environment.hpp"

#include "gpusock/error.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>

namespace gpusock::cudart {
namespace {

constexpr const char* kQueues = "CUDA_DEVICE_MAX_CONNECTIONS";
constexpr int kQueuesOfDriver = 8;  // if the variable is not set in time, or not positive
constexpr int kQueuesMax = 32;

bool set_too_late = false;

/// True if CUDA has been initialised in this process: then the driver has read the environment.
bool cuda_in_use() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  const auto current = reinterpret_cast<int (*)(void**)>(dlsym(driver, "cuCtxGetCurrent"));
  void* context = nullptr;
  constexpr int kNotInitialized = 3;  // CUDA_ERROR_NOT_INITIALIZED
  const bool in_use = current == nullptr || current(&context) != kNotInitialized;
  dlclose(driver);
  return in_use;
}

/// Runs before main() and other objects' constructors, when the process has one thread and has made no CUDA call. Many
/// container images set CUDA_MODULE_LOADING=LAZY, which is wrong for programs whose kernels wait for each other.
[[gnu::constructor(101)]] void set_environment() {
  set_too_late = getenv(kQueues) == nullptr && cuda_in_use();
  setenv(kQueues, "32", 0);
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
}

}  // namespace

int hardware_queues() {
  const char* const value = set_too_late ? nullptr : std::getenv(kQueues);
  const long queues = value == nullptr ? 0 : std::strtol(value, nullptr, 10);
  return queues <= 0 ? kQueuesOfDriver : static_cast<int>(std::min<long>(queues, kQueuesMax));
}

void require_launches_that_return() {
  constexpr const char* kBlocking = "CUDA_LAUNCH_BLOCKING";
  const char* const value = std::getenv(kBlocking);
  const std::string_view says = value == nullptr ? "" : value;
  if (says.empty() || says == "0") return;
  throw Error(ENOTSUP, std::string(kBlocking) + "=" + std::string(says) +
                           " makes each launch wait for the end of its kernel, so a kernel that waits for another one, "
                           "or for the host, never ends; unset it before the program starts");
}

}  // namespace gpusock::cudart
