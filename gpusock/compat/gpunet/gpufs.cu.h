#pragma once
/// @file GPUfs's header, with what GPUnet kernels use of it: locks, copies, parts for one thread. It has no file calls.
#include "gpusock/compat/gpunet_memory.cuh"
