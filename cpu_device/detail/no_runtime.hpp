#pragma once
/// @file CUDA runtime functions that the CPU device does not have: a call fails to compile with a sentence that says
/// what to write instead. Without these, the compiler would say only that the name is not declared.

#include <type_traits>

// These functions are variadic: if CUDA's own header is included too, its function of the same name is always the
// better match.
#define CPU_DEVICE_LACKS(name, instead)                                                                              \
  template <class Called = void>                                                                                     \
  int name(...) {                                                                                                    \
    static_assert(!std::is_void_v<Called>, "the CPU device has no CUDA runtime, and so no " #name ": use " instead); \
    return 0;                                                                                                        \
  }

CPU_DEVICE_LACKS(cudaMalloc, "gpusock::DeviceBuffer, which works with GPUs as well")
CPU_DEVICE_LACKS(cudaMallocAsync, "gpusock::DeviceBuffer, which works with GPUs as well")
CPU_DEVICE_LACKS(cudaMallocManaged, "gpusock::Mapped, which works with GPUs as well")
CPU_DEVICE_LACKS(cudaMallocHost, "gpusock::Mapped, which works with GPUs as well")
CPU_DEVICE_LACKS(cudaHostAlloc, "gpusock::Mapped, which works with GPUs as well")
CPU_DEVICE_LACKS(cudaFree, "gpusock::DeviceBuffer, which frees its memory itself")
CPU_DEVICE_LACKS(cudaFreeAsync, "gpusock::DeviceBuffer, which frees its memory itself")
CPU_DEVICE_LACKS(cudaFreeHost, "gpusock::Mapped, which frees its memory itself")
CPU_DEVICE_LACKS(cudaMemcpy, "copy_in and copy_out of gpusock::DeviceBuffer")
CPU_DEVICE_LACKS(cudaMemcpyAsync, "copy_in and copy_out of gpusock::DeviceBuffer")
CPU_DEVICE_LACKS(cudaMemset, "a kernel, or copy_in of gpusock::DeviceBuffer")
CPU_DEVICE_LACKS(cudaMemsetAsync, "a kernel, or copy_in of gpusock::DeviceBuffer")
CPU_DEVICE_LACKS(cudaLaunchKernel, "gpusock::launch")
CPU_DEVICE_LACKS(cudaStreamCreate, "gpusock::Stream")
CPU_DEVICE_LACKS(cudaStreamSynchronize, "gpusock::Stream::synchronize")
CPU_DEVICE_LACKS(cudaDeviceSynchronize, "gpusock::Context::synchronize")
CPU_DEVICE_LACKS(cudaGetLastError, "gpusock::launch and gpusock::Context::synchronize, which throw what went wrong")
CPU_DEVICE_LACKS(cudaSetDevice, "gpusock::Options::gpu")

#undef CPU_DEVICE_LACKS
