#include "gpusock/cuda/driver.hpp"

#include "gpusock/cuda/check.hpp"

namespace gpusock::cudart {
namespace {

template <class Function>
void find(const char* name, [[maybe_unused]] unsigned since_version, Function& function) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &address, since_version, cudaEnableDefault, &result);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &result);
#endif
  const bool found = taken(error) == cudaSuccess && result == cudaDriverEntryPointSuccess;
  function = found ? reinterpret_cast<Function>(address) : nullptr;
}

Driver found() {
  Driver driver;
  find("cuCtxGetCurrent", 4000, driver.ctx_get_current);
  find("cuModuleGetLoadingMode", 11070, driver.module_get_loading_mode);
  find("cuKernelGetLibrary", 12050, driver.kernel_get_library);
  find("cuLibraryGetKernelCount", 12040, driver.library_get_kernel_count);
  find("cuLibraryEnumerateKernels", 12040, driver.library_enumerate_kernels);
  find("cuKernelGetFunction", 12000, driver.kernel_get_function);
  find("cuFuncLoad", 12040, driver.func_load);
  find("cuFuncGetAttribute", 11000, driver.func_get_attribute);
  return driver;
}

}  // namespace

const Driver& Driver::get() {
  static const Driver driver = found();
  return driver;
}

}  // namespace gpusock::cudart
