#pragma once
/// @file The environment variables that the CUDA driver reads, once, at the first CUDA call of the process.

namespace gpusock::cudart {

/// Returns the number of hardware queues that this process's streams share on each GPU: CUDA_DEVICE_MAX_CONNECTIONS, 1
/// to 32, or the driver's default of 8. Kernels of two streams that share a queue may run one after the other.
///
/// Before main() gpusock sets CUDA_DEVICE_MAX_CONNECTIONS to 32 if it is unset, and CUDA_MODULE_LOADING to EAGER in any
/// case. It does not set them later, when other threads may read the environment. The settings have no effect if CUDA
/// was in use before, as happens if a library that is loaded later brings gpusock along.
int hardware_queues();

/// Throws Error (ENOTSUP) if CUDA_LAUNCH_BLOCKING makes a launch wait for the end of its kernel.
void require_launches_that_return();

}  // namespace gpusock::cudart
