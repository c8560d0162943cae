#pragma once
/// @file CUDA's atomic functions. They are truly atomic: blocks run on OS threads, and host threads reach the same
/// memory.
///
/// They order more than CUDA's (acquire and release instead of relaxed): kernels use CUDA's with __threadfence(), which
/// ThreadSanitizer does not model. On x86-64, the stronger order costs nothing.

#include "cpu_device/detail/builtins.hpp"

#include <cstring>
#include <type_traits>

namespace cpu_device::detail {

extern constinit thread_local unsigned t_atomic_calls;

/// A loop around an atomic may wait for a thread of the same block: every 64th call lets the block's threads run.
inline void atomic_called() {
  if ((++t_atomic_calls & 63) == 0) yield();
}

template <std::size_t kBytes>
using Bits =
    std::conditional_t<kBytes == 8, unsigned long long, std::conditional_t<kBytes == 4, unsigned, unsigned short>>;

/// Replaces *address by operation(*address); returns the old value.
template <class T, class Operation>
inline T atomic_update(T* address, Operation operation) {
  using Word = Bits<sizeof(T)>;
  auto* word = reinterpret_cast<Word*>(address);
  Word old_bits = __atomic_load_n(word, __ATOMIC_RELAXED);  // a stale value only costs another turn of the loop
  for (;;) {
    T old;
    std::memcpy(&old, &old_bits, sizeof old);
    const T changed = operation(old);
    Word new_bits;
    std::memcpy(&new_bits, &changed, sizeof changed);
    if (__atomic_compare_exchange_n(word, &old_bits, new_bits, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      atomic_called();
      return old;
    }
  }
}

}  // namespace cpu_device::detail

// Defines each function, also under its _block and _system names: all scopes are the same here.
#define CPU_DEVICE_ATOMIC(name, type, expression)                                      \
  inline type name(type* address, type value) { return expression; }                   \
  inline type name##_block(type* address, type value) { return name(address, value); } \
  inline type name##_system(type* address, type value) { return name(address, value); }
#define CPU_DEVICE_FETCH(builtin) (cpu_device::detail::atomic_called(), builtin(address, value, __ATOMIC_ACQ_REL))
#define CPU_DEVICE_UPDATE(type, result) \
  cpu_device::detail::atomic_update(address, [value](type old) -> type { return result; })

#define CPU_DEVICE_ATOMIC_INTEGER(type)                                                                               \
  CPU_DEVICE_ATOMIC(atomicAdd, type, CPU_DEVICE_FETCH(__atomic_fetch_add))                                            \
  CPU_DEVICE_ATOMIC(atomicExch, type, CPU_DEVICE_FETCH(__atomic_exchange_n))                                          \
  CPU_DEVICE_ATOMIC(atomicAnd, type, CPU_DEVICE_FETCH(__atomic_fetch_and))                                            \
  CPU_DEVICE_ATOMIC(atomicOr, type, CPU_DEVICE_FETCH(__atomic_fetch_or))                                              \
  CPU_DEVICE_ATOMIC(atomicXor, type, CPU_DEVICE_FETCH(__atomic_fetch_xor))                                            \
  CPU_DEVICE_ATOMIC(atomicMin, type, CPU_DEVICE_UPDATE(type, value < old ? value : old))                              \
  CPU_DEVICE_ATOMIC(atomicMax, type, CPU_DEVICE_UPDATE(type, old < value ? value : old))                              \
  inline type atomicCAS(type* address, type compare, type value) {                                                    \
    __atomic_compare_exchange_n(address, &compare, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);                 \
    cpu_device::detail::atomic_called();                                                                              \
    return compare;                                                                                                   \
  }                                                                                                                   \
  inline type atomicCAS_block(type* address, type compare, type value) { return atomicCAS(address, compare, value); } \
  inline type atomicCAS_system(type* address, type compare, type value) { return atomicCAS(address, compare, value); }

CPU_DEVICE_ATOMIC_INTEGER(int)
CPU_DEVICE_ATOMIC_INTEGER(unsigned)
CPU_DEVICE_ATOMIC_INTEGER(unsigned long long)
CPU_DEVICE_ATOMIC(atomicSub, int, CPU_DEVICE_FETCH(__atomic_fetch_sub))
CPU_DEVICE_ATOMIC(atomicSub, unsigned, CPU_DEVICE_FETCH(__atomic_fetch_sub))
CPU_DEVICE_ATOMIC(atomicMin, long long, CPU_DEVICE_UPDATE(long long, value < old ? value : old))
CPU_DEVICE_ATOMIC(atomicMax, long long, CPU_DEVICE_UPDATE(long long, old < value ? value : old))
CPU_DEVICE_ATOMIC(atomicInc, unsigned, CPU_DEVICE_UPDATE(unsigned, old >= value ? 0 : old + 1))
CPU_DEVICE_ATOMIC(atomicDec, unsigned, CPU_DEVICE_UPDATE(unsigned, old == 0 || old > value ? value : old - 1))
CPU_DEVICE_ATOMIC(atomicAdd, float, CPU_DEVICE_UPDATE(float, old + value))
CPU_DEVICE_ATOMIC(atomicAdd, double, CPU_DEVICE_UPDATE(double, old + value))
CPU_DEVICE_ATOMIC(atomicExch, float, cpu_device::detail::atomic_update(address, [value](float) { return value; }))
#undef CPU_DEVICE_ATOMIC
#undef CPU_DEVICE_FETCH
#undef CPU_DEVICE_UPDATE
#undef CPU_DEVICE_ATOMIC_INTEGER

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
