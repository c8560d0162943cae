#include "gpusock/cuda/arena.hpp"

#include "gpusock/cuda/check.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace gpusock::cudart {
namespace {

const Driver& driver() { return Driver::get(); }

void check(CUresult error, int errno_value, const std::string& what) {
  if (error == CUDA_SUCCESS) return;
  const char* name = nullptr;
  driver().get_error_name(error, &name);
  throw Error(errno_value, what + ": " + (name == nullptr ? std::to_string(error) : name));
}

/// Throws Error (ENOTSUP) unless the GPU has memory that other processes can map.
void require_shareable(int gpu) {
  const std::string what = "sharing memory of GPU " + std::to_string(gpu) + " with other processes";
  if (!driver().manages_virtual_memory()) throw Error(ENOTSUP, what + ": the driver is older than CUDA 10.2");
  CUdevice device = 0;
  check(driver().device_get(&device, gpu), ENOTSUP, what);
  for (const auto& [attribute, name] :
       {std::pair(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "virtual memory management"),
        std::pair(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, "memory with a file descriptor")}) {
    int has = 0;
    check(driver().device_get_attribute(&has, attribute, device), ENOTSUP, what);
    if (has == 0) throw Error(ENOTSUP, what + ": it has no " + name);
  }
}

CUmemLocation location_of(int gpu) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = gpu;
  return location;
}

CUmemAllocationProp properties_of(int gpu) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = location_of(gpu);
  return properties;
}

/// Rounds up, because memory of this kind comes in whole granules.
std::size_t in_granules(int gpu, std::size_t bytes) {
  const CUmemAllocationProp properties = properties_of(gpu);
  std::size_t granule = 0;
  check(driver().mem_get_allocation_granularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM), ENOTSUP,
        "asking for the granularity of memory of GPU " + std::to_string(gpu));
  const std::size_t rest = granule == 0 ? 0 : bytes % granule;
  return rest == 0 ? bytes : bytes + (granule - rest);
}

/// Returns the number that the GPU with this PCI address has in this process; nothing if this process does not see it
/// (CUDA_VISIBLE_DEVICES). Memory of such a GPU can be mapped all the same.
std::optional<int> number_of(const std::string& address) {
  int number = 0;
  if (taken(cudaDeviceGetByPCIBusId(&number, address.c_str())) != cudaSuccess) return {};
  return number;
}

/// Throws Error (ENOTSUP) if it is known that kernels of `gpu` cannot use memory of `owner`.
void require_reach(int gpu, std::optional<int> owner) {
  int can = 0;
  if (!owner || *owner == gpu || (taken(cudaDeviceCanAccessPeer(&can, gpu, *owner)) == cudaSuccess && can != 0)) return;
  throw Error::with_cause(ENOTSUP, "GPU " + std::to_string(gpu) + " does not reach the memory of GPU " +
                                       std::to_string(*owner) + " (cudaDeviceCanAccessPeer)");
}

}  // namespace

/// Owns the driver's handle. The memory outlives the handle as long as it is mapped, or another process has it.
struct CudaArena::Allocation {
  Allocation() = default;
  ~Allocation() {
    if (handle != 0) driver().mem_release(handle);
  }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  Driver::Handle handle = 0;
};

CudaArena::CudaArena(int gpu, std::size_t bytes) : gpu_(gpu), bytes_(in_granules(gpu, bytes)) {}

std::unique_ptr<CudaArena> CudaArena::make(int gpu, std::size_t bytes) {
  const CurrentGpu current(gpu);
  require_shareable(gpu);
  std::unique_ptr<CudaArena> arena(new CudaArena(gpu, bytes));
  const CUmemAllocationProp properties = properties_of(gpu);
  const std::string what = "allocating " + std::to_string(arena->bytes_) +
                           " bytes of GPU memory for rings between processes";
  Allocation allocation;
  check(driver().mem_create(&allocation.handle, arena->bytes_, &properties, 0), ENOMEM, what);
  arena->map(allocation, gpu);
  int descriptor = -1;
  check(driver().mem_export_to_shareable_handle(&descriptor, allocation.handle,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        ENOTSUP, what);
  arena->descriptor_.reset(descriptor);
  return arena;
}

std::unique_ptr<CudaArena> CudaArena::map(int gpu, int descriptor, std::size_t bytes, const std::string& address) {
  const CurrentGpu current(gpu);
  const std::optional<int> owner = number_of(address);
  require_shareable(gpu);
  require_reach(gpu, owner);
  std::unique_ptr<CudaArena> arena(new CudaArena(gpu, bytes));
  const std::string what = "importing another process's memory of the GPU at " + address;
  Allocation allocation;
  auto* const shared = reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor));  // as the driver wants it
  check(driver().mem_import_from_shareable_handle(&allocation.handle, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        EPROTO, what);
  CUmemAllocationProp properties{};
  check(driver().mem_get_allocation_properties_from_handle(&properties, allocation.handle), EPROTO, what);
  if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE || (owner && properties.location.id != *owner)) {
    throw Error(EPROTO, what + ": it is elsewhere");
  }
  arena->map(allocation, gpu);
  return arena;
}

void CudaArena::map(const Allocation& allocation, int gpu) {
  const std::string what = "mapping " + std::to_string(bytes_) + " bytes of GPU memory";
  check(driver().mem_address_reserve(&address_, bytes_, 0, 0, 0), ENOMEM, what);
  check(driver().mem_map(address_, bytes_, 0, allocation.handle, 0), EPROTO, what);
  mapped_ = true;
  CUmemAccessDesc access{};
  access.location = location_of(gpu);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(driver().mem_set_access(address_, bytes_, &access, 1), EPROTO, what);
}

CudaArena::~CudaArena() {
  if (address_ == 0) return;
  const CurrentGpu current(gpu_);
  if (mapped_) driver().mem_unmap(address_, bytes_);
  driver().mem_address_free(address_, bytes_);
}

}  // namespace gpusock::cudart
