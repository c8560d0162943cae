#pragma once
/// @file The one macro that lets a header compile for the host, the CPU device and GPUs.
/// GPUSOCK_FN marks a function that both a host thread and a kernel may call.

#if defined(__CUDACC__)
#define GPUSOCK_FN __host__ __device__
#else
#define GPUSOCK_FN
#endif

/// GPUSOCK_ON_GPU is 1 while code for a GPU is being compiled, and 0 for the host and the CPU device.
#if defined(__CUDA_ARCH__)
#define GPUSOCK_ON_GPU 1
#else
#define GPUSOCK_ON_GPU 0
#endif
