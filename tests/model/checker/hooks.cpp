// What the compiler calls before each plain access of code that is built with -fsanitize=thread: here it is not
// ThreadSanitizer that answers, but the model. Memory functions and the clock are wrapped by the linker (--wrap).
#include "run.hpp"

#include <ctime>

namespace {

inline void plain_access(const void* address, std::size_t bytes, bool writes) {
  if (gpusock::model::running_machine != nullptr) gpusock::model::plain_access(address, bytes, writes);
}

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define GPUSOCK_MODEL_ACCESS(bytes)                                                         \
  void __tsan_read##bytes(void* address) { plain_access(address, bytes, false); }           \
  void __tsan_write##bytes(void* address) { plain_access(address, bytes, true); }           \
  void __tsan_unaligned_read##bytes(void* address) { plain_access(address, bytes, false); } \
  void __tsan_unaligned_write##bytes(void* address) { plain_access(address, bytes, true); }
GPUSOCK_MODEL_ACCESS(1)
GPUSOCK_MODEL_ACCESS(2)
GPUSOCK_MODEL_ACCESS(4)
GPUSOCK_MODEL_ACCESS(8)
GPUSOCK_MODEL_ACCESS(16)
#undef GPUSOCK_MODEL_ACCESS

void __tsan_read_range(void* address, std::size_t bytes) { plain_access(address, bytes, false); }
void __tsan_write_range(void* address, std::size_t bytes) { plain_access(address, bytes, true); }

// Atomics that are no cuda::atomic_ref: reference counts and the like, which are no part of what is checked.
#define GPUSOCK_MODEL_ATOMIC(bits, type)                                                                    \
  type __tsan_atomic##bits##_load(const type* word, int) { return *word; }                                  \
  void __tsan_atomic##bits##_store(type* word, type value, int) { *word = value; }                          \
  type __tsan_atomic##bits##_exchange(type* word, type value, int) {                                        \
    return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);                                              \
  }                                                                                                         \
  type __tsan_atomic##bits##_fetch_add(type* word, type value, int) {                                       \
    return __atomic_fetch_add(word, value, __ATOMIC_SEQ_CST);                                               \
  }                                                                                                         \
  type __tsan_atomic##bits##_fetch_sub(type* word, type value, int) {                                       \
    return __atomic_fetch_sub(word, value, __ATOMIC_SEQ_CST);                                               \
  }                                                                                                         \
  int __tsan_atomic##bits##_compare_exchange_strong(type* word, type* expected, type desired, int, int) {   \
    return __atomic_compare_exchange_n(word, expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }
GPUSOCK_MODEL_ATOMIC(8, unsigned char)
GPUSOCK_MODEL_ATOMIC(32, unsigned)
GPUSOCK_MODEL_ATOMIC(64, unsigned long)
#undef GPUSOCK_MODEL_ATOMIC

void* __real_memcpy(void*, const void*, std::size_t);
void* __real_memmove(void*, const void*, std::size_t);
void* __real_memset(void*, int, std::size_t);

void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  plain_access(from, bytes, false);
  plain_access(to, bytes, true);
  return __real_memcpy(to, from, bytes);
}

void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
  plain_access(from, bytes, false);
  plain_access(to, bytes, true);
  return __real_memmove(to, from, bytes);
}

void* __wrap_memset(void* to, int value, std::size_t bytes) {
  plain_access(to, bytes, true);
  return __real_memset(to, value, bytes);
}

int __wrap_clock_gettime(clockid_t, timespec* now) {
  const std::uint64_t ns = gpusock::model::now_ns();
  now->tv_sec = static_cast<time_t>(ns / 1'000'000'000);
  now->tv_nsec = static_cast<long>(ns % 1'000'000'000);
  return 0;
}

}  // extern "C"
