#pragma once
/// @file The header name by which GPUnet's programs include CUDA. It includes CUDA's language for the CPU device or,
/// where nvcc compiles, CUDA's own header.
#if defined(GPUSOCK_DEVICE_CPU)
#include "cpu_device/cuda.hpp"
#else
#include_next <cuda_runtime.h>
#endif
