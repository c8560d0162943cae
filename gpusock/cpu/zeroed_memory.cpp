#include "gpusock/cpu/zeroed_memory.hpp"

#include "cpu_device/sanitizers.hpp"

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>
#include <new>

namespace gpusock::detail {
namespace {

constexpr std::align_val_t kAlignment{256};
/// Memory of this size or more is mapped. For less, zeroing costs less than the system call. AddressSanitizer finds
/// accesses past the end of memory from operator new, but not past that of a mapping: with it, nothing is mapped.
constexpr std::size_t kMappedBytesMin = CPU_DEVICE_ASAN != 0 ? ~std::size_t{0} : std::size_t{1} << 20;

/// All mappings. Never destroyed, because static objects may free their memory at any time.
struct Mappings {
  std::mutex mutex;
  std::map<void*, std::size_t> bytes;
};
Mappings& mappings() {
  static auto* const all = new Mappings;
  return *all;
}

void* map_zeroed(std::size_t bytes) noexcept {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  try {
    const std::lock_guard lock(mappings().mutex);
    mappings().bytes.emplace(memory, bytes);
  } catch (const std::bad_alloc&) {
    munmap(memory, bytes);
    return nullptr;
  }
  return memory;
}

/// Removes a mapping from mappings() and returns its bytes; returns 0 if there is none.
std::size_t forget_mapping(void* memory) noexcept {
  const std::lock_guard lock(mappings().mutex);
  const auto found = mappings().bytes.find(memory);
  if (found == mappings().bytes.end()) return 0;
  const std::size_t bytes = found->second;
  mappings().bytes.erase(found);
  return bytes;
}

}  // namespace

void* allocate_zeroed(std::size_t bytes) noexcept {
  if (bytes >= kMappedBytesMin) return map_zeroed(bytes);
  void* const memory = ::operator new(bytes, kAlignment, std::nothrow);
  return memory == nullptr ? nullptr : std::memset(memory, 0, bytes);
}

void free_zeroed(void* memory) noexcept {
  if (const std::size_t bytes = forget_mapping(memory); bytes != 0) {
    munmap(memory, bytes);
  } else {
    ::operator delete(memory, kAlignment);
  }
}

}  // namespace gpusock::detail
