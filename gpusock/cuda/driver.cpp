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
  find("cuDeviceGet", 2000, driver.device_get);
  find("cuDeviceGetAttribute", 2000, driver.device_get_attribute);
  find("cuGetErrorName", 6000, driver.get_error_name);
  find("cuMemGetAllocationGranularity", 10020, driver.mem_get_allocation_granularity);
  find("cuMemCreate", 10020, driver.mem_create);
  find("cuMemRelease", 10020, driver.mem_release);
  find("cuMemAddressReserve", 10020, driver.mem_address_reserve);
  find("cuMemAddressFree", 10020, driver.mem_address_free);
  find("cuMemMap", 10020, driver.mem_map);
  find("cuMemUnmap", 10020, driver.mem_unmap);
  find("cuMemSetAccess", 10020, driver.mem_set_access);
  find("cuMemExportToShareableHandle", 10020, driver.mem_export_to_shareable_handle);
  find("cuMemImportFromShareableHandle", 10020, driver.mem_import_from_shareable_handle);
  find("cuMemGetAllocationPropertiesFromHandle", 10020, driver.mem_get_allocation_properties_from_handle);
  return driver;
}

}  // namespace

bool Driver::manages_virtual_memory() const {
  return device_get != nullptr && device_get_attribute != nullptr && get_error_name != nullptr &&
         mem_get_allocation_granularity != nullptr && mem_create != nullptr && mem_release != nullptr &&
         mem_address_reserve != nullptr && mem_address_free != nullptr && mem_map != nullptr && mem_unmap != nullptr &&
         mem_set_access != nullptr && mem_export_to_shareable_handle != nullptr &&
         mem_import_from_shareable_handle != nullptr && mem_get_allocation_properties_from_handle != nullptr;
}

const Driver& Driver::get() {
  static const Driver driver = found();
  return driver;
}

}  // namespace gpusock::cudart
