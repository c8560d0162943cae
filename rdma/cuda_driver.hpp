#pragma once
/// @file Calls of the CUDA driver, loaded at run time and declared without CUDA's headers: for a NIC's access to a
/// GPU's memory, and for gpusock-doctor. Builds without CUDA and without RDMA have them too.

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpusock::rdma {

/// Functions of libcuda, with the types of its ABI (CUresult, CUdevice and the enumerations are ints). A function that
/// the driver lacks is nullptr. Tests put their own functions here.
struct CudaDriver {
  int (*get_handle_for_address_range)(void* handle, std::uint64_t address, std::size_t bytes, int type,
                                      unsigned long long flags) = nullptr;       // cuMemGetHandleForAddressRange
  int (*device_get_attribute)(int* value, int attribute, int device) = nullptr;  // cuDeviceGetAttribute
  int (*flush_gpudirect_rdma_writes)(int target, int scope) = nullptr;           // cuFlushGPUDirectRDMAWrites
  int (*get_error_name)(int error, const char** name) = nullptr;                 // cuGetErrorName
  int (*init)(unsigned flags) = nullptr;                                         // cuInit
  int (*driver_get_version)(int* version) = nullptr;                             // cuDriverGetVersion
  int (*device_get_count)(int* count) = nullptr;                                 // cuDeviceGetCount
  int (*device_get)(int* device, int ordinal) = nullptr;                         // cuDeviceGet
  int (*device_get_name)(char* name, int bytes, int device) = nullptr;           // cuDeviceGetName
  int (*device_get_pci_bus_id)(char* address, int bytes, int device) = nullptr;  // cuDeviceGetPCIBusId
  int (*device_can_access_peer)(int* can, int device, int peer) = nullptr;       // cuDeviceCanAccessPeer

  /// The name of an error: "CUDA_ERROR_NOT_SUPPORTED", or "error 801" if the driver gives no name.
  std::string name_of(int error) const;
};

/// The driver of this machine; nullptr if there is none. It is loaded once and never unloaded.
const CudaDriver* cuda_driver();

/// Loads the driver from `library` into `into`, and returns its address. Returns nullptr if there is no such library.
const CudaDriver* load_cuda_driver(const char* library, CudaDriver& into);

}  // namespace gpusock::rdma
