#pragma once
/// @file GPUfs's name for what GPUnet kernels use of it: locks, copies, parts for one thread. There are no files.
#include "gpusock/compat/gpunet_memory.cuh"
