#pragma once
/// @file The multiply-add that all sums of a training use.

#include "gpusock/types.hpp"

namespace param_sync {

/// Returns a * b + c: fused on a GPU, rounded twice on a CPU (not every x86-64 has a fused instruction).
GPUSOCK_FN inline float multiply_add(float a, float b, float c) {
#if GPUSOCK_ON_GPU
  return __fmaf_rn(a, b, c);
#else
  return a * b + c;
#endif
}

}  // namespace param_sync
