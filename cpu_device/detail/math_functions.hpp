#pragma once
/// @file CUDA's integer and float intrinsics that a host compiler lacks.

#include <cmath>
#include <cstdint>
#include <cstring>

inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __ffsll(long long value) { return __builtin_ffsll(value); }
inline int __clz(int value) { return value == 0 ? 32 : __builtin_clz(static_cast<unsigned>(value)); }
inline int __clzll(long long value) {
  return value == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(value));
}
inline unsigned __brev(unsigned value) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i, value >>= 1) reversed = reversed << 1 | (value & 1);
  return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(std::uint64_t{a} * b >> 32); }

template <class T>
inline T __ldg(const T* address) {
  return *address;
}

#define CPU_DEVICE_MIN_MAX(type)                               \
  constexpr type min(type a, type b) { return b < a ? b : a; } \
  constexpr type max(type a, type b) { return a < b ? b : a; }
CPU_DEVICE_MIN_MAX(int)
CPU_DEVICE_MIN_MAX(unsigned)
CPU_DEVICE_MIN_MAX(long)
CPU_DEVICE_MIN_MAX(unsigned long)
CPU_DEVICE_MIN_MAX(long long)
CPU_DEVICE_MIN_MAX(unsigned long long)
#undef CPU_DEVICE_MIN_MAX
// As fmin and fmax do, these return the other operand if one is not a number.
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }

namespace cpu_device::detail {

/// Keeps the compiler from fusing the operation that made `value` with one that uses it.
template <class T>
inline T unfused(T value) {
#if defined(__FMA__)
  asm("" : "+x"(value));
#elif defined(__aarch64__)
  asm("" : "+w"(value));
#endif
  return value;
}

template <class To, class From>
inline To bit_copy(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace cpu_device::detail

inline float __fadd_rn(float a, float b) { return cpu_device::detail::unfused(a + b); }
inline float __fsub_rn(float a, float b) { return cpu_device::detail::unfused(a - b); }
inline float __fmul_rn(float a, float b) { return cpu_device::detail::unfused(a * b); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline double __dadd_rn(double a, double b) { return cpu_device::detail::unfused(a + b); }
inline double __dmul_rn(double a, double b) { return cpu_device::detail::unfused(a * b); }

// On a GPU, these are fast approximations. Here they are the exact functions.
inline float __expf(float value) { return std::exp(value); }
inline float __logf(float value) { return std::log(value); }
inline float __sinf(float value) { return std::sin(value); }
inline float __cosf(float value) { return std::cos(value); }
inline float __powf(float base, float exponent) { return std::pow(base, exponent); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float value) { return std::fmin(std::fmax(value, 0.0f), 1.0f); }
#if !defined(__GLIBC__) || !__GLIBC_PREREQ(2, 42)  // glibc has them since version 2.42
inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }
inline double rsqrt(double value) { return 1.0 / std::sqrt(value); }
#endif

inline unsigned __float_as_uint(float value) { return cpu_device::detail::bit_copy<unsigned>(value); }
inline int __float_as_int(float value) { return cpu_device::detail::bit_copy<int>(value); }
inline float __uint_as_float(unsigned value) { return cpu_device::detail::bit_copy<float>(value); }
inline float __int_as_float(int value) { return cpu_device::detail::bit_copy<float>(value); }
inline int __float2int_rn(float value) { return static_cast<int>(std::nearbyint(value)); }
inline int __float2int_rd(float value) { return static_cast<int>(std::floor(value)); }
inline float __int2float_rn(int value) { return static_cast<float>(value); }
