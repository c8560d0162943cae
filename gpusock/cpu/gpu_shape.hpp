#pragma once
/// @file The CPU device in the shape of a GPU, for tests: docs/testing.md says how it differs from the CPU device.

#include "gpusock/context/device.hpp"

#include <memory>

namespace gpusock::detail {

/// True if GPUSOCK_CPU_SHAPE asks for this shape. The variable is read once. Throws Error (EINVAL) if its value is
/// invalid.
bool has_gpu_shape();

/// Makes one of the two GPUs of that shape. The first call gives the process's CPU device its shape. Throws Error:
/// (EINVAL) kernels have run in another shape before, (ENODEV) there is no GPU with this number.
std::unique_ptr<Device> make_gpu_shaped_device(int gpu);

}  // namespace gpusock::detail
