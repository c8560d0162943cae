#pragma once
/// @file CUDA's function and variable qualifiers, for a host compiler.

// libstdc++ spells an attribute __noinline__ in here: it must be read before the name becomes a macro.
#include <memory>

#undef __device__  // libcu++ makes these three empty for a host compiler
#undef __host__
#undef __forceinline__

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

// A block is an OS thread, so what its threads share is what the OS thread has for itself. Uninitialised at the start
// of a block, as in CUDA: the block before may have left its values. `extern __shared__` has no counterpart; dynamic
// shared memory is cpu_device::dynamic_shared().
#define __shared__ static thread_local  // After extern: write T* x = gpusock::dynamic_shared<T>() instead.
