#pragma once
/// @file CUDA's function and variable qualifiers, for a host compiler.

// libstdc++ uses an attribute __noinline__ in this header, which must be read before the name becomes a macro.
#include <memory>

#undef __device__  // libcu++ defines these three as empty for a host compiler
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

// A block runs on one OS thread, so its threads share the thread-local memory of that OS thread. It is uninitialised at
// the start of a block, as in CUDA: the previous block may have left its values. `extern __shared__` has no
// counterpart; dynamic shared memory is cpu_device::dynamic_shared().
#define __shared__ static thread_local  // After extern: write T* x = gpusock::dynamic_shared<T>() instead.
