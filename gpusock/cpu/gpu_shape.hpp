#pragma once
/// @file The CPU device in the shape of a GPU, for tests: docs/testing.md says how it differs from the CPU device.

#include "gpusock/context/device.hpp"

#include <memory>

namespace gpusock::detail {

/// True if GPUSOCK_CPU_SHAPE asks for it; looked at once. Throws Error (EINVAL) where the variable has a value that it
/// cannot have.
bool has_gpu_shape();

/// One of the two GPUs of that shape. The first one gives the process's CPU device its shape. Throws Error (EINVAL)
/// where kernels have run in another shape before, (ENODEV) where there is no GPU of that number.
std::unique_ptr<Device> make_gpu_shaped_device(int gpu);

}  // namespace gpusock::detail
