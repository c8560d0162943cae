// Asks the CUDA driver. It is loaded at run time: if there is none, the doctor still runs, and says so.
#include "gpusock/tools/doctor/sources.hpp"
#include "rdma/visibility.hpp"

namespace gpusock::doctor {
namespace {

using rdma::CudaDriver;

// From the driver's ABI, which does not change.
enum Attribute : int {
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
  kHostNativeAtomics = 86,
  kHostPointerForRegisteredMemory = 91,
  kGpuDirectRdma = 116,
  kDmaBuf = 124,
};
constexpr int kNotFound = 500;  // CUDA_ERROR_NOT_FOUND

/// Calls a function of the driver. Returns its CUresult, or kNotFound if the driver has none of that name.
template <class... Parameters, class... Arguments>
int call(int (*function)(Parameters...), Arguments... arguments) {
  return function == nullptr ? kNotFound : function(arguments...);
}

Gpu describe(const CudaDriver& driver, int device) {
  const auto attribute = [&](Attribute which) {
    int value = 0;
    return call(driver.device_get_attribute, &value, static_cast<int>(which), device) == 0 ? value : 0;
  };
  Gpu gpu;
  char text[256] = "";
  if (call(driver.device_get_name, &text[0], int{sizeof text}, device) == 0) gpu.name = text;
  if (call(driver.device_get_pci_bus_id, &text[0], int{sizeof text}, device) == 0) gpu.pci = text;
  gpu.capability_major = attribute(kCapabilityMajor);
  gpu.capability_minor = attribute(kCapabilityMinor);
  gpu.host_atomics = attribute(kHostNativeAtomics) != 0;
  gpu.same_address = attribute(kHostPointerForRegisteredMemory) != 0;
  gpu.gpudirect_rdma = attribute(kGpuDirectRdma) != 0;
  gpu.dmabuf = attribute(kDmaBuf) != 0;
  const rdma::NicWrites visibility = rdma::visibility_of_nic_writes(&driver, device);
  gpu.sees_nic_writes = visibility != rdma::NicWrites::unsure;
  gpu.orders_nic_writes = visibility == rdma::NicWrites::in_order;
  return gpu;
}

}  // namespace

Cuda ask_cuda_driver() {
  const CudaDriver* driver = rdma::cuda_driver();
  Cuda cuda;
  cuda.library = driver != nullptr;
  if (!cuda.library) return cuda;
  call(driver->driver_get_version, &cuda.version);
  int count = 0;
  int error = call(driver->init, 0u);
  if (error == 0) error = call(driver->device_get_count, &count);
  if (error != 0) {
    cuda.error = driver->name_of(error);
    return cuda;
  }
  for (int i = 0; i < count; ++i) {
    int device = 0;
    if (call(driver->device_get, &device, i) == 0) cuda.gpus.push_back(describe(*driver, device));
  }
  for (std::size_t from = 0; from < cuda.gpus.size(); ++from) {
    for (std::size_t to = 0; to < cuda.gpus.size(); ++to) {
      int can = 0;
      const bool known = from != to &&
                         call(driver->device_can_access_peer, &can, static_cast<int>(from), static_cast<int>(to)) == 0;
      if (known && can != 0) cuda.gpus[from].peers.push_back(static_cast<int>(to));
    }
  }
  return cuda;
}

}  // namespace gpusock::doctor
