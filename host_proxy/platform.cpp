#include "host_proxy/platform.hpp"

#include "host_proxy/error.hpp"

#include <sys/mman.h>

#include <string>

namespace gpusock::proxy {

void* HostPlatform::allocate_shared(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(errno, "allocating " + std::to_string(bytes) + " bytes for sockets; lower Options::sockets_max or ring_bytes");
  }
  return memory;
}

void HostPlatform::free_shared(void* memory, std::size_t bytes) noexcept { munmap(memory, bytes); }

}  // namespace gpusock::proxy
