#include "rdma/cuda_driver.hpp"

#include <dlfcn.h>

namespace gpusock::rdma {
namespace {

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

const CudaDriver* load_cuda_driver(const char* library, CudaDriver& into) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);  // never closed: unloading the driver is unsafe
  if (handle == nullptr) return nullptr;
  find(handle, "cuMemGetHandleForAddressRange", into.get_handle_for_address_range);
  find(handle, "cuDeviceGetAttribute", into.device_get_attribute);
  find(handle, "cuFlushGPUDirectRDMAWrites", into.flush_gpudirect_rdma_writes);
  find(handle, "cuGetErrorName", into.get_error_name);
  find(handle, "cuInit", into.init);
  find(handle, "cuDriverGetVersion", into.driver_get_version);
  find(handle, "cuDeviceGetCount", into.device_get_count);
  find(handle, "cuDeviceGet", into.device_get);
  find(handle, "cuDeviceGetName", into.device_get_name);
  find(handle, "cuDeviceGetPCIBusId", into.device_get_pci_bus_id);
  find(handle, "cuDeviceCanAccessPeer", into.device_can_access_peer);
  return &into;
}

const CudaDriver* cuda_driver() {
  static CudaDriver functions;
  static const CudaDriver* driver = load_cuda_driver("libcuda.so.1", functions);
  return driver;
}

std::string CudaDriver::name_of(int error) const {
  const char* name = nullptr;
  if (get_error_name == nullptr || get_error_name(error, &name) != 0 || name == nullptr)
    return "error " + std::to_string(error);
  return name;
}

}  // namespace gpusock::rdma
