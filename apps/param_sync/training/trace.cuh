#pragma once
/// @file What a traced step launches besides: the times between its compute kernels.

#include "training/step.cuh"

namespace param_sync {

/// Kernels of a stream follow each other: this time ends one of them and begins the next. One thread.
static __global__ void mark_time(std::uint64_t* at) { *at = gpusock::clock_ns(); }

/// Ends when the weights that an exchange brings are those of `clock`: so the wait is told apart from the forward
/// kernel. One block.
static __global__ void wait_for_exchange(NodeState node, int exchange, std::uint64_t clock,
                                         std::uint64_t* step_waited_ns) {
  wait_for_version(node, exchange, clock, step_waited_ns);
}

}  // namespace param_sync
