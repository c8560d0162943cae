#pragma once
/// @file CUDA's built-in vector types: the same names, members, sizes and alignment.

#if defined(__CUDACC__)
#error "cpu_device is for host compilers: nvcc has these types itself"
#endif

#define CPU_DEVICE_VECTORS(type, name, align2, align4)                           \
  struct name##1 {                                                               \
    type x;                                                                      \
  };                                                                             \
  struct alignas(align2) name##2 {                                               \
    type x, y;                                                                   \
  };                                                                             \
  struct name##3 {                                                               \
    type x, y, z;                                                                \
  };                                                                             \
  struct alignas(align4) name##4 {                                               \
    type x, y, z, w;                                                             \
  };                                                                             \
  constexpr name##1 make_##name##1(type x) { return {x}; }                       \
  constexpr name##2 make_##name##2(type x, type y) { return {x, y}; }            \
  constexpr name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
  constexpr name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

CPU_DEVICE_VECTORS(signed char, char, 2, 4)
CPU_DEVICE_VECTORS(unsigned char, uchar, 2, 4)
CPU_DEVICE_VECTORS(short, short, 4, 8)
CPU_DEVICE_VECTORS(unsigned short, ushort, 4, 8)
CPU_DEVICE_VECTORS(int, int, 8, 16)
CPU_DEVICE_VECTORS(unsigned, uint, 8, 16)
CPU_DEVICE_VECTORS(long long, longlong, 16, 16)
CPU_DEVICE_VECTORS(unsigned long long, ulonglong, 16, 16)
CPU_DEVICE_VECTORS(float, float, 8, 16)
CPU_DEVICE_VECTORS(double, double, 16, 16)
#undef CPU_DEVICE_VECTORS

/// A shape. A dimension that is not given is 1.
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned width = 1, unsigned height = 1, unsigned depth = 1) : x(width), y(height), z(depth) {}
  constexpr dim3(uint3 value) : x(value.x), y(value.y), z(value.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
