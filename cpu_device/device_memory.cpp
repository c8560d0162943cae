#include "cpu_device/device_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <utility>

namespace cpu_device {
namespace {

/// The protection key of all device memory; -1: there is none.
constinit std::atomic<int> g_key{-1};

/// Where device memory lies. Never destroyed: static objects free theirs at any time.
struct Pieces {
  std::mutex mutex;
  std::map<void*, std::size_t> bytes;
};
Pieces& pieces() {
  static auto* const all = new Pieces;
  return *all;
}

int key() noexcept { return g_key.load(std::memory_order_relaxed); }  // relaxed: set before there is memory of it

}  // namespace

void* allocate_device_memory(std::size_t bytes) {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t rounded = (bytes + page - 1) / page * page;
  if (rounded < bytes) throw std::bad_alloc();
  const std::size_t mapped = rounded == 0 ? page : rounded;
  void* const memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  try {
    if (key() >= 0 && pkey_mprotect(memory, mapped, PROT_READ | PROT_WRITE, key()) != 0) throw std::bad_alloc();
    const std::lock_guard lock(pieces().mutex);
    pieces().bytes.emplace(memory, mapped);
  } catch (...) {
    munmap(memory, mapped);
    throw;
  }
  return memory;
}

void free_device_memory(void* memory) noexcept {
  if (memory == nullptr) return;
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(pieces().mutex);
    const auto piece = pieces().bytes.find(memory);
    if (piece == pieces().bytes.end()) return;
    bytes = piece->second;
    pieces().bytes.erase(piece);
  }
  munmap(memory, bytes);
}

void copy_device_memory(void* to, const void* from, std::size_t bytes) noexcept {
  if (key() < 0) {
    std::memcpy(to, from, bytes);
    return;
  }
  const int rights = pkey_get(key());
  pkey_set(key(), 0);
  std::memcpy(to, from, bytes);
  pkey_set(key(), static_cast<unsigned>(rights));
}

bool device_memory_is_guarded() noexcept { return key() >= 0; }

namespace detail {

void guard_device_memory() noexcept {
  if (key() < 0) g_key.store(pkey_alloc(0, PKEY_DISABLE_ACCESS), std::memory_order_relaxed);
}

void open_device_memory() noexcept {
  if (key() >= 0) pkey_set(key(), 0);
}

}  // namespace detail
}  // namespace cpu_device
