#pragma once
/// @file The arguments of codecs: the part of a chunk that one pass of a step moves, and sizes.

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync::codec {

/// Floats [begin, end) of a tensor.
struct Part {
  std::uint64_t begin = 0;  ///< the first float
  std::uint64_t end = 0;    ///< after the last one
  std::uint64_t index = 0;  ///< number of this part among all parts of the tensor
  std::uint64_t step = 0;   ///< number of the training's step, from 0
  /// How many floats.
  GPUSOCK_FN std::uint64_t count() const { return end - begin; }
};

/// The size of a tensor, for the memory that a codec needs.
struct Tensor {
  std::uint64_t floats = 0;  ///< floats of the tensor
  std::uint64_t parts = 0;   ///< parts into which its chunks are cut, in all
};

/// What a rank sends in a step for all tensors together, before encoding.
struct StepTraffic {
  std::uint64_t messages = 0;      ///< messages, signals included
  std::uint64_t floats = 0;        ///< floats of gradients and weights
  std::uint64_t header_bytes = 0;  ///< size of a message's header
  std::uint64_t steps = 0;         ///< steps of the training
  int rank = 0;                    ///< the rank that sends
};

/// The elements of an encoded part, in device memory.
template <class Element>
struct Encoded {
  const Element* elements = nullptr;  ///< the first one
  std::uint64_t count = 0;            ///< how many
};

}  // namespace param_sync::codec
