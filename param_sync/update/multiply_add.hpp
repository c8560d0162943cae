#pragma once
/// @file The one multiply-add that all of a training's sums are made of.

#include "gpusock/types.hpp"

namespace param_sync {

/// a * b + c: fused on a GPU, rounded twice on a CPU (not every x86-64 has a fused instruction).
GPUSOCK_FN inline float multiply_add(float a, float b, float c) {
#if GPUSOCK_ON_GPU
  return __fmaf_rn(a, b, c);
#else
  return a * b + c;
#endif
}

}  // namespace param_sync
