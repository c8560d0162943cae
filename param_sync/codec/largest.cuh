#pragma once
/// @file Finds the numbers with the largest absolute values without sorting: a radix selection.

#include "param_sync/codec/mixed.hpp"

#include "gpusock/device.cuh"

#include <cstdint>

namespace param_sync::codec {

inline constexpr unsigned kChoosingThreadsMax = 256;  ///< threads of a block that select; the others wait

/// The absolute value of a number as bits, which have the same order. NaN is larger than all numbers.
__device__ inline std::uint32_t size_bits(float value) { return __float_as_uint(value) & 0x7fff'ffffu; }

/// A positive finite number, which depends on both numbers. Of such numbers, take_largest() takes any.
__device__ inline float random_number(std::uint32_t i, std::uint64_t step) {
  constexpr std::uint32_t kLargest = 0x7f00'0000;  // the bits of a finite number
  return __uint_as_float(static_cast<std::uint32_t>(mixed(step << 32 | i)) % kLargest + 1);
}

/// The smallest of the `most` largest absolute values, and how many numbers with just this value are among them.
struct Threshold {
  std::uint32_t bits = 0;   ///< of this absolute value
  std::uint32_t equal = 0;  ///< how many such numbers are among the largest ones
};

/// This thread's share of `count` numbers: a contiguous range, so that the result's order does not depend on timing.
struct OwnShare {
  std::uint32_t begin = 0;  ///< the first number
  std::uint32_t end = 0;    ///< after the last one
  /// The share of the calling thread.
  __device__ explicit OwnShare(std::uint32_t count) {
    const unsigned threads = min(blockDim.x, kChoosingThreadsMax);
    if (threadIdx.x >= threads) return;
    begin = static_cast<std::uint32_t>(std::uint64_t{count} * threadIdx.x / threads);
    end = static_cast<std::uint32_t>(std::uint64_t{count} * (threadIdx.x + 1) / threads);
  }
};

/// Finds the threshold digit by digit, the highest first: it counts how many numbers have each value of the
/// digit. `most` is at least 1. Block-collective.
template <class ValueAt>
__device__ inline Threshold threshold_of(std::uint32_t count, std::uint32_t most, ValueAt value_at) {
  constexpr std::uint32_t kValues = 256;
  GPUSOCK_SHARED(having, std::uint32_t[kValues]);
  const OwnShare own(count);
  Threshold found{0, most};
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (std::uint32_t value = threadIdx.x; value < kValues; value += blockDim.x) having[value] = 0;
    __syncthreads();
    for (std::uint32_t i = own.begin; i < own.end; ++i) {
      const std::uint32_t bits = size_bits(value_at(i));
      if (shift != 24 && bits >> (shift + 8) != found.bits >> (shift + 8)) continue;
#if GPUSOCK_ON_GPU
      atomicAdd(&having[bits >> shift & (kValues - 1)], 1u);
#else
      ++having[bits >> shift & (kValues - 1)];  // threads of a block take turns on one processor
#endif
    }
    __syncthreads();
    std::uint32_t value = kValues - 1;
    while (value > 0 && having[value] < found.equal) found.equal -= having[value--];
    found.bits |= value << shift;
    __syncthreads();  // all threads have read the counts before they are cleared
  }
  if (found.bits == 0) found.equal = 0;  // fewer than `most` numbers differ from 0
  return found;
}

/// Calls take(i, index) for the `most` of value_at(0) to value_at(count - 1) with the largest absolute values; of equal
/// numbers it takes the first, and never a 0. Indices count from 0 in the order of i. Returns how many numbers it took.
/// take() may change value_at() of the same i. Block-collective; ends with a barrier if `most` is not 0.
template <class ValueAt, class Take>
__device__ inline std::uint32_t take_largest(std::uint32_t count, std::uint32_t most, ValueAt value_at, Take take) {
  if (most == 0) return 0;
  GPUSOCK_SHARED(larger, std::uint32_t[kChoosingThreadsMax]);  // indexed by thread, as the next
  GPUSOCK_SHARED(equal, std::uint32_t[kChoosingThreadsMax]);
  const Threshold threshold = threshold_of(count, most, value_at);
  const OwnShare own(count);
  std::uint32_t larger_here = 0, equal_here = 0;
  for (std::uint32_t i = own.begin; i < own.end; ++i) {
    const std::uint32_t bits = size_bits(value_at(i));
    if (bits > threshold.bits) ++larger_here;
    if (bits == threshold.bits) ++equal_here;
  }
  const unsigned threads = min(blockDim.x, kChoosingThreadsMax);
  if (threadIdx.x < threads) {
    larger[threadIdx.x] = larger_here;
    equal[threadIdx.x] = equal_here;
  }
  __syncthreads();
  std::uint32_t larger_all = 0, equal_all = 0, index = 0, equal_before = 0;
  for (unsigned thread = 0; thread < threads; ++thread) {
    if (thread == threadIdx.x) {
      equal_before = equal_all;
      index = larger_all + min(equal_all, threshold.equal);
    }
    larger_all += larger[thread];
    equal_all += equal[thread];
  }
  for (std::uint32_t i = own.begin; i < own.end; ++i) {
    const std::uint32_t bits = size_bits(value_at(i));
    if (bits < threshold.bits) continue;
    if (bits == threshold.bits && equal_before++ >= threshold.equal) continue;
    take(i, index++);
  }
  __syncthreads();  // all threads have read `larger` and `equal`, and called take()
  return larger_all + min(equal_all, threshold.equal);
}

}  // namespace param_sync::codec
