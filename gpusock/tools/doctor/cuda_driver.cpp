// The CUDA driver, loaded at run time: the doctor runs, and says so, where there is none.
#include "gpusock/tools/doctor/sources.hpp"
#include "rdma/visibility.hpp"

#include <dlfcn.h>

#include <memory>

namespace gpusock::doctor {
namespace {

// From the driver's ABI, which does not change: CUresult and CUdevice are ints.
enum Attribute : int {
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
  kHostNativeAtomics = 86,
  kHostPointerForRegisteredMemory = 91,
  kGpuDirectRdma = 116,
  kDmaBuf = 124,
};

class Driver {
 public:
  Driver() : library_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {}

  bool loaded() const { return library_ != nullptr; }

  /// Calls a function of the driver; its CUresult, or 500 (not found) where it has none of that name.
  template <class... Arguments>
  int call(const char* name, Arguments... arguments) const {
    auto* function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, name));
    return function == nullptr ? 500 : function(arguments...);
  }

  template <class Function>
  void find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(library_, name));
  }

  int attribute(Attribute which, int device) const {
    int value = 0;
    return call("cuDeviceGetAttribute", &value, static_cast<int>(which), device) == 0 ? value : 0;
  }

  std::string name_of(int error) const {
    const char* name = nullptr;
    if (call("cuGetErrorName", error, &name) != 0 || name == nullptr) return "error " + std::to_string(error);
    return name;
  }

 private:
  void* library_;  // stays loaded: the driver does not like to go
};

Gpu describe(const Driver& driver, int device) {
  Gpu gpu;
  char text[256] = "";
  if (driver.call("cuDeviceGetName", &text[0], int{sizeof text}, device) == 0) gpu.name = text;
  if (driver.call("cuDeviceGetPCIBusId", &text[0], int{sizeof text}, device) == 0) gpu.pci = text;
  gpu.capability_major = driver.attribute(kCapabilityMajor, device);
  gpu.capability_minor = driver.attribute(kCapabilityMinor, device);
  gpu.host_atomics = driver.attribute(kHostNativeAtomics, device) != 0;
  gpu.same_address = driver.attribute(kHostPointerForRegisteredMemory, device) != 0;
  gpu.gpudirect_rdma = driver.attribute(kGpuDirectRdma, device) != 0;
  gpu.dmabuf = driver.attribute(kDmaBuf, device) != 0;
  rdma::CudaDriver calls;
  driver.find("cuDeviceGetAttribute", calls.device_get_attribute);
  driver.find("cuFlushGPUDirectRDMAWrites", calls.flush_gpudirect_rdma_writes);
  gpu.sees_card_writes = rdma::visibility_of_card_writes(&calls, device) != rdma::CardWrites::unsure;
  return gpu;
}

}  // namespace

Cuda ask_cuda_driver() {
  const Driver driver;
  Cuda cuda;
  cuda.library = driver.loaded();
  if (!cuda.library) return cuda;
  driver.call("cuDriverGetVersion", &cuda.version);
  int count = 0;
  int error = driver.call("cuInit", 0u);
  if (error == 0) error = driver.call("cuDeviceGetCount", &count);
  if (error != 0) {
    cuda.error = driver.name_of(error);
    return cuda;
  }
  for (int i = 0; i < count; ++i) {
    int device = 0;
    if (driver.call("cuDeviceGet", &device, i) == 0) cuda.gpus.push_back(describe(driver, device));
  }
  return cuda;
}

}  // namespace gpusock::doctor
