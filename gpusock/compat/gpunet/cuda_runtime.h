#pragma once
/// @file CUDA's language for the CPU device, by the name that GPUnet's programs include; where nvcc compiles, CUDA's
/// own header.
#if defined(GPUSOCK_DEVICE_CPU)
#include "cpu_device/cuda.hpp"
#else
#include_next <cuda_runtime.h>
#endif
