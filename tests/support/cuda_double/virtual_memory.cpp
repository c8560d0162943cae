// The driver's virtual memory management, over memory files that other processes map. Each call may wait for kernels,
// so each does.
#include "tests/support/cuda_double/machine.hpp"

#include "cpu_device/device_memory.hpp"
#include "host_proxy/base/descriptor.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <new>
#include <system_error>
#include <utility>

namespace cuda_double {
namespace {

using gpusock::proxy::Descriptor;

constexpr std::size_t kGranule = 64 << 10;

bool is_gpu(int number) { return number >= 0 && number < kGpus; }

CUresult device_get(CUdevice* device, int number) {
  if (!is_gpu(number)) return CUDA_ERROR_INVALID_VALUE;
  *device = number;
  return CUDA_SUCCESS;
}

CUresult device_get_attribute(int* value, CUdevice_attribute, CUdevice device) {
  Call call("cuDeviceGetAttribute");
  if (call.ends()) return CUDA_ERROR_UNKNOWN;
  if (!is_gpu(device)) return CUDA_ERROR_INVALID_VALUE;
  *value = call.machine().shares_memory ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult get_error_name(CUresult error, const char** name) {
  *name = error == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_UNKNOWN";
  return CUDA_SUCCESS;
}

CUresult mem_get_allocation_granularity(std::size_t* bytes, const CUmemAllocationProp*,
                                        CUmemAllocationGranularity_flags) {
  *bytes = kGranule;
  return CUDA_SUCCESS;
}

CUmemGenericAllocationHandle keep(Machine& machine, Descriptor file, std::size_t bytes, int gpu) {
  machine.handles[++machine.handles_made] = {std::move(file), bytes, gpu};
  return machine.handles_made;
}

CUresult mem_create(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                    unsigned long long flags) {
  Call call("cuMemCreate");
  if (call.ends()) return CUDA_ERROR_UNKNOWN;
  const int gpu = properties->location.id;
  if (bytes == 0 || bytes % kGranule != 0 || flags != 0 || !is_gpu(gpu) ||
      properties->type != CU_MEM_ALLOCATION_TYPE_PINNED || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  call.wait_for_work();
  try {
    *handle = keep(call.machine(), Descriptor(cpu_device::make_device_memory_file(bytes, gpu)), bytes, gpu);
  } catch (const std::system_error&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

CUresult mem_release(CUmemGenericAllocationHandle handle) {
  Call call("cuMemRelease", Call::Effect::frees_or_waits);
  call.wait_for_work();
  return call.machine().handles.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult mem_export_to_shareable_handle(void* shared, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType,
                                        unsigned long long) {
  Call call("cuMemExportToShareableHandle");
  if (call.ends()) return CUDA_ERROR_UNKNOWN;
  const auto found = call.machine().handles.find(handle);
  if (found == call.machine().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  const int file = fcntl(found->second.file.get(), F_DUPFD_CLOEXEC, 3);
  *static_cast<int*>(shared) = file;
  return file >= 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult mem_import_from_shareable_handle(CUmemGenericAllocationHandle* handle, void* shared,
                                          CUmemAllocationHandleType) {
  Call call("cuMemImportFromShareableHandle");
  if (call.ends()) return CUDA_ERROR_UNKNOWN;
  call.wait_for_work();
  const int number = static_cast<int>(reinterpret_cast<std::uintptr_t>(shared));
  struct stat facts {};
  if (fstat(number, &facts) != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto bytes = static_cast<std::size_t>(facts.st_size);
  const auto gpu = cpu_device::gpu_of_device_memory(number, bytes);
  if (!gpu) return CUDA_ERROR_INVALID_VALUE;
  *handle = keep(call.machine(), Descriptor(fcntl(number, F_DUPFD_CLOEXEC, 3)), bytes, *gpu);
  return CUDA_SUCCESS;
}

CUresult mem_get_allocation_properties_from_handle(CUmemAllocationProp* properties,
                                                   CUmemGenericAllocationHandle handle) {
  Call call("cuMemGetAllocationPropertiesFromHandle");
  if (call.ends()) return CUDA_ERROR_UNKNOWN;
  const auto found = call.machine().handles.find(handle);
  if (found == call.machine().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  *properties = {};
  properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties->location.id = found->second.gpu;
  return CUDA_SUCCESS;
}

CUresult mem_address_reserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags) {
  Call call("cuMemAddressReserve");
  if (call.ends()) return CUDA_ERROR_UNKNOWN;
  if (bytes == 0 || bytes % kGranule != 0 || alignment != 0 || wanted != 0 || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  call.wait_for_work();
  void* const memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(memory);
  call.machine().reservations[*address].bytes = bytes;
  return CUDA_SUCCESS;
}

/// The whole of a reservation, as gpusock maps it; nullptr: it is none.
Reservation* reservation_at(Machine& machine, CUdeviceptr address, std::size_t bytes) {
  const auto found = machine.reservations.find(address);
  return found != machine.reservations.end() && found->second.bytes == bytes ? &found->second : nullptr;
}

CUresult mem_address_free(CUdeviceptr address, std::size_t bytes) {
  Call call("cuMemAddressFree", Call::Effect::frees_or_waits);
  Reservation* const reserved = reservation_at(call.machine(), address, bytes);
  if (reserved == nullptr || reserved->file) return CUDA_ERROR_INVALID_VALUE;
  call.wait_for_work();
  if (!reserved->was_mapped) munmap(reinterpret_cast<void*>(address), bytes);
  call.machine().reservations.erase(address);
  return CUDA_SUCCESS;
}

/// Nothing reaches the memory before cuMemSetAccess().
CUresult mem_map(CUdeviceptr address, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
                 unsigned long long flags) {
  Call call("cuMemMap");
  if (call.ends()) return CUDA_ERROR_UNKNOWN;
  Reservation* const reserved = reservation_at(call.machine(), address, bytes);
  const auto found = call.machine().handles.find(handle);
  if (reserved == nullptr || reserved->file || reserved->was_mapped || offset != 0 || flags != 0 ||
      found == call.machine().handles.end() || found->second.bytes != bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  call.wait_for_work();
  reserved->file = Descriptor(fcntl(found->second.file.get(), F_DUPFD_CLOEXEC, 3));
  reserved->gpu = found->second.gpu;
  return reserved->file ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult mem_set_access(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access, std::size_t count) {
  Call call("cuMemSetAccess");
  if (call.ends()) return CUDA_ERROR_UNKNOWN;
  Reservation* const reserved = reservation_at(call.machine(), address, bytes);
  if (reserved == nullptr || !reserved->file || count != 1 || !is_gpu(access->location.id) ||
      access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (access->location.id != reserved->gpu && !call.machine().peers_reach_each_other) return CUDA_ERROR_INVALID_VALUE;
  call.wait_for_work();
  try {
    cpu_device::map_device_memory(reserved->file.get(), bytes, reinterpret_cast<void*>(address));
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  reserved->was_mapped = true;
  call.machine().memory[address] = {bytes, Kind::device, reserved->gpu, true};
  return CUDA_SUCCESS;
}

CUresult mem_unmap(CUdeviceptr address, std::size_t bytes) {
  Call call("cuMemUnmap", Call::Effect::frees_or_waits);
  Reservation* const reserved = reservation_at(call.machine(), address, bytes);
  if (reserved == nullptr || !reserved->file) return CUDA_ERROR_INVALID_VALUE;
  call.wait_for_work();
  call.wait_for_peers(reserved->gpu);
  reserved->file.reset(-1);
  if (call.machine().memory.erase(address) == 1) cpu_device::free_device_memory(reinterpret_cast<void*>(address));
  return CUDA_SUCCESS;
}

template <class Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

void set_shares_memory(bool shares) {
  Machine& machine = Machine::get();
  const Lock lock(machine.mutex);
  machine.shares_memory = shares;
}

void* virtual_memory_function(std::string_view name) {
  const std::pair<std::string_view, void*> functions[] = {
      {"cuDeviceGet", address_of(device_get)},
      {"cuDeviceGetAttribute", address_of(device_get_attribute)},
      {"cuGetErrorName", address_of(get_error_name)},
      {"cuMemGetAllocationGranularity", address_of(mem_get_allocation_granularity)},
      {"cuMemCreate", address_of(mem_create)},
      {"cuMemRelease", address_of(mem_release)},
      {"cuMemAddressReserve", address_of(mem_address_reserve)},
      {"cuMemAddressFree", address_of(mem_address_free)},
      {"cuMemMap", address_of(mem_map)},
      {"cuMemUnmap", address_of(mem_unmap)},
      {"cuMemSetAccess", address_of(mem_set_access)},
      {"cuMemExportToShareableHandle", address_of(mem_export_to_shareable_handle)},
      {"cuMemImportFromShareableHandle", address_of(mem_import_from_shareable_handle)},
      {"cuMemGetAllocationPropertiesFromHandle", address_of(mem_get_allocation_properties_from_handle)},
  };
  for (const auto& [each, function] : functions) {
    if (each == name) return function;
  }
  return nullptr;
}

}  // namespace cuda_double
