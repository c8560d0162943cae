#pragma once
/// @file What a traced step launches besides: the times between its compute kernels.

#include "training/step.cuh"

namespace param_sync {

/// Kernels of a stream follow each other: this time ends one of them and begins the next. One thread.
static __global__ void mark_time(std::uint64_t* at) { *at = gpusock::clock_ns(); }

}  // namespace param_sync
