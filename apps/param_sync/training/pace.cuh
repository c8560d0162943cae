#pragma once
/// @file Steps that take at least as long as a trial says (--step-ms, --delays).

#include "training/state.cuh"

#include <cstdint>

namespace param_sync {

/// Notes when a step begins, once it has all its weights. Adds the time that it has waited to the step's. One block.
[[maybe_unused]] static __global__ void begin_pace(NodeState node, std::uint64_t clock, std::uint64_t* step_waited_ns,
                                                   std::uint64_t* begun_ns) {
  if (wait_for_versions(node, clock, step_waited_ns) && threadIdx.x == 0) *begun_ns = gpusock::clock_ns();
}

/// Waits until the step has taken so long. One block.
[[maybe_unused]] static __global__ void end_pace(NodeState node, std::uint64_t ns, const std::uint64_t* begun_ns) {
  const std::uint64_t until_ns = *begun_ns + ns;
  wait_until(node, [&] { return gpusock::clock_ns() >= until_ns; });
}

}  // namespace param_sync
