#pragma once
/// @file The few calls of the CUDA driver that have no counterpart in the runtime. The runtime finds them.

#include <cuda.h>

#include <cstddef>

namespace gpusock::cudart {

/// Functions of the driver; nullptr if the driver has none of that name.
struct Driver {
  CUresult (*ctx_get_current)(CUcontext* context) = nullptr;
  CUresult (*module_get_loading_mode)(CUmoduleLoadingMode* mode) = nullptr;
  CUresult (*kernel_get_library)(CUlibrary* library, CUkernel kernel) = nullptr;  // since 12.5
  CUresult (*library_get_kernel_count)(unsigned* count, CUlibrary library) = nullptr;
  CUresult (*library_enumerate_kernels)(CUkernel* kernels, unsigned count, CUlibrary library) = nullptr;
  CUresult (*kernel_get_function)(CUfunction* function, CUkernel kernel) = nullptr;
  CUresult (*func_load)(CUfunction function) = nullptr;
  CUresult (*func_get_attribute)(int* value, CUfunction_attribute attribute, CUfunction function) = nullptr;

  // Virtual memory management (since 10.2): a driver has all of these functions, or gpusock uses none.
  using Handle = CUmemGenericAllocationHandle;
  CUresult (*device_get)(CUdevice* device, int number) = nullptr;
  CUresult (*device_get_attribute)(int* value, CUdevice_attribute attribute, CUdevice device) = nullptr;
  CUresult (*get_error_name)(CUresult error, const char** name) = nullptr;
  CUresult (*mem_get_allocation_granularity)(std::size_t* bytes, const CUmemAllocationProp* properties,
                                             CUmemAllocationGranularity_flags kind) = nullptr;
  CUresult (*mem_create)(Handle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                         unsigned long long flags) = nullptr;
  CUresult (*mem_release)(Handle handle) = nullptr;
  CUresult (*mem_address_reserve)(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, CUdeviceptr wanted,
                                  unsigned long long flags) = nullptr;
  CUresult (*mem_address_free)(CUdeviceptr address, std::size_t bytes) = nullptr;
  CUresult (*mem_map)(CUdeviceptr address, std::size_t bytes, std::size_t offset, Handle handle,
                      unsigned long long flags) = nullptr;
  CUresult (*mem_unmap)(CUdeviceptr address, std::size_t bytes) = nullptr;
  CUresult (*mem_set_access)(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                             std::size_t count) = nullptr;
  CUresult (*mem_export_to_shareable_handle)(void* shared, Handle handle, CUmemAllocationHandleType type,
                                             unsigned long long flags) = nullptr;
  CUresult (*mem_import_from_shareable_handle)(Handle* handle, void* shared, CUmemAllocationHandleType type) = nullptr;
  CUresult (*mem_get_allocation_properties_from_handle)(CUmemAllocationProp* properties, Handle handle) = nullptr;
  bool manages_virtual_memory() const;

  /// Returns this machine's driver. Call it after the first CUDA call.
  static const Driver& get();
};

}  // namespace gpusock::cudart
