#pragma once
/// @file What a codec is given: the part of a chunk that a pass of a step moves.

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync::codec {

/// Floats [begin, end) of a tensor.
struct Part {
  std::uint64_t begin = 0;  ///< the first float
  std::uint64_t end = 0;    ///< after the last one
  std::uint64_t index = 0;  ///< among all parts of the tensor
  std::uint64_t step = 0;   ///< of the training, from 0
  /// How many floats.
  GPUSOCK_FN std::uint64_t count() const { return end - begin; }
};

/// A tensor, for the memory of a codec.
struct Tensor {
  std::uint64_t floats = 0;  ///< of the tensor
  std::uint64_t parts = 0;   ///< into which all its chunks are cut
};

/// What a rank sends in a step, of all tensors together, before they are encoded.
struct StepTraffic {
  std::uint64_t messages = 0;      ///< signals included
  std::uint64_t floats = 0;        ///< gradients and weights
  std::uint64_t header_bytes = 0;  ///< of a message
  std::uint64_t steps = 0;         ///< of the training
  int rank = 0;                    ///< the rank that sends
};

/// Elements of an encoded part; in device memory.
template <class Element>
struct Encoded {
  const Element* elements = nullptr;  ///< the first one
  std::uint64_t count = 0;            ///< how many
};

}  // namespace param_sync::codec
