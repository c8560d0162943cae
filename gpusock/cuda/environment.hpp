#pragma once
/// @file What the CUDA driver reads from the environment, once, at the first CUDA call of the process.

namespace gpusock::cudart {

/// Hardware queues that the streams of this process share, on each GPU: what CUDA_DEVICE_MAX_CONNECTIONS says, 1 to 32,
/// or the driver's 8. Kernels of two streams that share a queue may run one after the other.
///
/// Before main() gpusock sets CUDA_DEVICE_MAX_CONNECTIONS to 32 where it is unset, and CUDA_MODULE_LOADING to EAGER
/// whatever it says. Not later: then other threads may read the environment. It has no effect where CUDA was in use
/// before, as it is where a library that is loaded later brings gpusock along.
int hardware_queues();

/// Throws Error (ENOTSUP) where CUDA_LAUNCH_BLOCKING makes a launch wait for the end of its kernel.
void require_launches_that_return();

}  // namespace gpusock::cudart
