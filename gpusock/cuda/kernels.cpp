#include "gpusock/cuda/kernels.hpp"

#include "gpusock/cuda/check.hpp"
#include "gpusock/cuda/driver.hpp"
#include "plain_types/clock.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

namespace gpusock::cudart {
namespace {

constexpr auto kTurn = std::chrono::milliseconds(1);

}  // namespace

std::atomic<std::uint64_t>& Kernels::patience_ns() {
  static std::atomic<std::uint64_t> patience{5'000'000'000};
  return patience;
}

std::shared_lock<std::shared_mutex> Kernels::make_ready(const void* symbol) {
  cudaKernel_t kernel = nullptr;
  std::uint64_t started_ns = 0;
  for (;;) {
    {
      std::shared_lock lock(mutex_);
      if (ready_.contains(symbol)) return lock;
    }
    if (kernel == nullptr) {
      started_ns = detail::monotonic_ns();
      check(cudaGetKernel(&kernel, symbol), EINVAL, "launch: finding the kernel");
    }
    if (try_make_ready(symbol, kernel)) continue;
    if (detail::monotonic_ns() - started_ns > patience_ns()) {
      throw Error(EBUSY, "launch: the kernel is launched for the first time, and " +
                             std::string(loads_lazily() ? "loading it" : "setting up its stack") +
                             " would wait for kernels that run, for ever if one of them waits for it. Launch it once "
                             "before those, or set "
                             "CUDA_MODULE_LOADING=EAGER before the first CUDA call");
    }
    std::this_thread::sleep_for(kTurn);
  }
}

/// Makes the kernel ready for launches. Returns false if a launch is under way, or if kernels run for which it would
/// have to wait: then try again.
bool Kernels::try_make_ready(const void* symbol, cudaKernel_t kernel) {
  const auto lock = try_hold_launches();
  if (!lock.owns_lock()) return false;
  if (!loaded_.contains(kernel)) {
    const bool busy = streams_.any_kernel_runs();
    if (busy && loads_lazily()) return false;
    const Handles library = library_of(kernel);
    std::size_t stack_bytes = 0, set_up = 0;
    for (cudaKernel_t each : library) stack_bytes = std::max(stack_bytes, load(each));
    check(cudaDeviceGetLimit(&set_up, cudaLimitStackSize), EINVAL, "launch: reading the stack's size");
    if (stack_bytes > set_up) {
      if (busy) return false;
      check(cudaDeviceSetLimit(cudaLimitStackSize, stack_bytes), ENOMEM,
            "launch: setting up stacks of " + std::to_string(stack_bytes) + " bytes for each thread of the GPU");
    }
    loaded_.insert(library.begin(), library.end());
  }
  ready_.insert(symbol);
  return true;
}

/// Returns the kernels of this kernel's library, including this one; this one alone if the driver cannot say (before
/// 12.5).
Kernels::Handles Kernels::library_of(cudaKernel_t kernel) const {
  const Driver& driver = Driver::get();
  CUlibrary library = nullptr;
  unsigned count = 0;
  const bool known = driver.kernel_get_library != nullptr && driver.library_get_kernel_count != nullptr &&
                     driver.library_enumerate_kernels != nullptr &&
                     driver.kernel_get_library(&library, kernel) == CUDA_SUCCESS &&
                     driver.library_get_kernel_count(&count, library) == CUDA_SUCCESS;
  Handles kernels(known ? count : 0);
  if (known && driver.library_enumerate_kernels(kernels.data(), count, library) != CUDA_SUCCESS) kernels.clear();
  if (std::find(kernels.begin(), kernels.end(), kernel) == kernels.end()) kernels.push_back(kernel);
  return kernels;
}

bool Kernels::loads_lazily() const {
  CUmoduleLoadingMode mode = CU_MODULE_LAZY_LOADING;
  const Driver& driver = Driver::get();
  return driver.module_get_loading_mode == nullptr || driver.module_get_loading_mode(&mode) != CUDA_SUCCESS ||
         mode != CU_MODULE_EAGER_LOADING;
}

/// Loads a kernel unless it is loaded. Returns the stack that each of its threads needs, in bytes.
std::size_t Kernels::load(cudaKernel_t kernel) const {
  const Driver& driver = Driver::get();
  CUfunction function = nullptr;
  int bytes = 0;
  if (driver.kernel_get_function == nullptr || driver.kernel_get_function(&function, kernel) != CUDA_SUCCESS) return 0;
  if (driver.func_load != nullptr) driver.func_load(function);  // if this fails, so does the launch, which says why
  const bool known = driver.func_get_attribute != nullptr &&
                     driver.func_get_attribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function) == CUDA_SUCCESS;
  return known ? static_cast<std::size_t>(bytes) : 0;
}

}  // namespace gpusock::cudart
