#pragma once
/// @file The macros that let a header compile for the host, the CPU device and GPUs.
/// GPUSOCK_FN marks a function that both a host thread and a kernel may call. GPUSOCK_FN_APART marks such a function
/// that is not inlined: a call costs nothing beside an access across the bus. If these functions were inlined, a kernel
/// with ten socket calls would hold ten copies of each, and take a compiler a minute.

#if defined(__CUDACC__)
#define GPUSOCK_FN __host__ __device__
#else
#define GPUSOCK_FN
#endif

#if defined(GPUSOCK_ALL_INLINE)  // for tests that read the instructions of one call in one piece
#define GPUSOCK_FN_APART GPUSOCK_FN
#elif defined(__CUDACC__)
#define GPUSOCK_FN_APART __host__ __device__ __noinline__
#else
#define GPUSOCK_FN_APART [[gnu::noinline]]
#endif

/// GPUSOCK_ON_GPU is 1 while code for a GPU is being compiled, and 0 for the host and the CPU device.
#if defined(__CUDA_ARCH__)
#define GPUSOCK_ON_GPU 1
#else
#define GPUSOCK_ON_GPU 0
#endif

/// GPUSOCK_KERNELS_ON_CPU is 1 where a host compiler compiles kernels: for the CPU device, and in tests for the double
/// of the CUDA runtime (tests/support/cuda_double), which runs them on it.
#if defined(GPUSOCK_DEVICE_CPU) || defined(GPUSOCK_CUDA_DOUBLE)
#define GPUSOCK_KERNELS_ON_CPU 1
#else
#define GPUSOCK_KERNELS_ON_CPU 0
#endif
