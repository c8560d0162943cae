#pragma once
/// @file What a tensor consists of, and what a collective operation makes of the tensors of all ranks.

#include "gpusock/types.hpp"

#include <cstddef>
#include <cstdint>

namespace param_sync {

/// The type of a tensor's elements.
enum class DataType : std::uint8_t {
  float32,   ///< IEEE 754 binary32: C++'s float
  float16,   ///< IEEE 754 binary16: CUDA's __half
  bfloat16,  ///< the upper half of a float32: CUDA's __nv_bfloat16
  int32      ///< std::int32_t; sums and products wrap
};

/// How elements of all ranks become one element.
///
/// Elements of 16 bits are added and multiplied as float32, and each intermediate result is rounded to 16 bits (to the
/// nearest one, ties to even). So a long sum of float16 may be inexact, and it is infinite beyond 65,504.
enum class ReduceOp : std::uint8_t {
  sum,
  average,  ///< each rank's elements are multiplied by 1 / ranks, and then summed; not of int32
  product,
  min,  ///< not a number if any rank's element is not a number; -0 is less than +0
  max   ///< as min
};

/// Returns the size of an element in bytes.
constexpr std::size_t size_of(DataType type) { return type == DataType::float16 || type == DataType::bfloat16 ? 2 : 4; }

/// Returns the name of a type, for error messages.
constexpr const char* name_of(DataType type) {
  constexpr const char* kNames[] = {"float32", "float16", "bfloat16", "int32"};
  return kNames[static_cast<int>(type)];
}

/// A reduction: an operation on elements of a type. The default is what training uses.
struct Reduction {
  DataType type = DataType::float32;  ///< the type of the elements
  ReduceOp op = ReduceOp::sum;        ///< what becomes of them

  /// True if elements that arrive are floats, and are added.
  constexpr bool adds_floats() const {
    return type == DataType::float32 && (op == ReduceOp::sum || op == ReduceOp::average);
  }
};

}  // namespace param_sync
