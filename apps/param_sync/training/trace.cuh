#pragma once
/// @file The kernel that a traced step also launches: it records the times between the compute kernels.

#include "training/step.cuh"

namespace param_sync {

/// Records the time: one kernel of the stream has ended, and the next one begins. One thread.
static __global__ void mark_time(std::uint64_t* at) { *at = gpusock::clock_ns(); }

}  // namespace param_sync
