#include "gpusock/cpu/host_platform.hpp"

#include "gpusock/cpu/memory_copier.hpp"
#include "gpusock/error.hpp"

#include <sys/mman.h>

#include <cstring>
#include <new>
#include <string>

namespace gpusock::proxy {
namespace {

constexpr std::align_val_t kDeviceAlignment{256};

}  // namespace

void* HostPlatform::allocate_shared(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(errno,
                "allocating " + std::to_string(bytes) + " bytes for sockets; lower Options::sockets_max or ring_bytes");
  }
  return memory;
}

void HostPlatform::free_shared(void* memory, std::size_t bytes) noexcept { munmap(memory, bytes); }

std::byte* HostPlatform::allocate_device(std::size_t bytes) {
  void* memory = ::operator new(bytes, kDeviceAlignment, std::nothrow);
  if (memory == nullptr) throw Error(ENOMEM, "allocating " + std::to_string(bytes) + " bytes for rings");
  return static_cast<std::byte*>(memory);
}

void HostPlatform::free_device(std::byte* memory) noexcept { ::operator delete(memory, kDeviceAlignment); }

void HostPlatform::zero_device(std::byte* memory, std::size_t bytes) { std::memset(memory, 0, bytes); }

std::byte* HostPlatform::proxy_address(std::byte* device_memory) const { return hide(device_memory); }

std::unique_ptr<Copier> HostPlatform::make_copier() { return std::make_unique<MemoryCopier>(); }

}  // namespace gpusock::proxy
