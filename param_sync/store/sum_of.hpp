#pragma once
/// @file The sum of some ranks' floats, with clocks that drop late pushes. Servers and param_sync --serial use it.

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync::store {

/// Returns the sum of the floats of the ranks that have a bit in `summed`, which is not 0, in the order of ranks.
/// `floats`: that of rank 0. `stride`: floats from a rank's to the next rank's.
GPUSOCK_FN inline float sum_of(std::uint64_t summed, const float* floats, std::uint64_t stride) {
  while ((summed & 1) == 0) {
    summed >>= 1;
    floats += stride;
  }
  float sum = *floats;  // a sum that began with 0 would make 0 of -0
  while ((summed >>= 1) != 0) {
    floats += stride;
    if ((summed & 1) != 0) sum = sum + *floats;
  }
  return sum;
}

}  // namespace param_sync::store
