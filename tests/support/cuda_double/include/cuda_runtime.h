#pragma once
/// @file What nvcc includes before each .cu file: the runtime's interface, and CUDA's language, here the CPU device's.

#include "cuda_runtime_api.h"

#include "cpu_device/cuda.hpp"
