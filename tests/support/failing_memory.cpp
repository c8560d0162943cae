#include "tests/support/failing_memory.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace gpusock::failing_memory {
namespace {

constexpr std::uint64_t kUnarmed = 0;
std::atomic<std::uint64_t> nth_to_fail = kUnarmed;
std::atomic<std::uint64_t> seen = 0;
std::atomic<bool> all_from_there = false;

bool fails() {
  const std::uint64_t nth = nth_to_fail.load();
  if (nth == kUnarmed || (counts != nullptr && !counts())) return false;
  const std::uint64_t number = ++seen;
  return number == nth || (number > nth && all_from_there.load());
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (fails()) throw std::bad_alloc();
  if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) {
    if (void* small = std::malloc(bytes == 0 ? 1 : bytes)) return small;
    throw std::bad_alloc();
  }
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes == 0 ? 1 : bytes) != 0) throw std::bad_alloc();
  return memory;
}

/// As allocate(), for who asked for no exception.
void* or_null(std::size_t bytes, std::size_t alignment = __STDCPP_DEFAULT_NEW_ALIGNMENT__) noexcept {
  try {
    return allocate(bytes, alignment);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

bool (*counts)() = nullptr;

void arm(std::uint64_t nth, Extent extent) {
  seen = 0;
  all_from_there = extent == Extent::all_from_there;
  nth_to_fail = nth;
}

bool disarm() {
  const std::uint64_t nth = nth_to_fail.exchange(kUnarmed);
  return seen.load() >= nth;
}

}  // namespace gpusock::failing_memory

void* operator new(std::size_t bytes) {
  return gpusock::failing_memory::allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return gpusock::failing_memory::allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) { return operator new(bytes, alignment); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return gpusock::failing_memory::or_null(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return gpusock::failing_memory::or_null(bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return gpusock::failing_memory::or_null(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return gpusock::failing_memory::or_null(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
