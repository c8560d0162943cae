#pragma once
/// @file The reductions of lanes: what becomes of an element that arrives and this rank's element. Lanes move words of
/// four bytes, as floats: one element of 32 bits, or two of 16 bits.

#include "param_sync/reduction/data_type.hpp"
#include "param_sync/reduction/element.hpp"

#include "gpusock/device.cuh"

#include <cstdint>

namespace param_sync::reduction {

/// Adds words that are floats.
struct AddFloats {
  __device__ float operator()(float arrived, float own) const { return arrived + own; }
};

/// Applies an operation to the elements of two words.
template <class Element, class Operation>
struct OnWords {
  __device__ float operator()(float arrived, float own) const {
    const auto a = bits_as<std::uint32_t>(arrived), b = bits_as<std::uint32_t>(own);
    if constexpr (sizeof(typename Element::Bits) == sizeof(float)) {
      return bits_as<float>(of(a, b));
    } else {
      return bits_as<float>(of(a & 0xffff, b & 0xffff) | of(a >> 16, b >> 16) << 16);
    }
  }

 private:
  __device__ static std::uint32_t of(std::uint32_t a, std::uint32_t b) {
    using Bits = typename Element::Bits;
    return Element::bits(Operation::of(Element::number(static_cast<Bits>(a)), Element::number(static_cast<Bits>(b))));
  }
};

/// Replaces each element of a word by what `of` makes of its number.
template <class Element, class Of>
__device__ inline float on_elements(float word, Of of) {
  using Bits = typename Element::Bits;
  const auto bits = bits_as<std::uint32_t>(word);
  const auto one = [&](std::uint32_t element) {
    return std::uint32_t{Element::bits(of(Element::number(static_cast<Bits>(element))))};
  };
  if constexpr (sizeof(Bits) == sizeof(float)) {
    return bits_as<float>(one(bits));
  } else {
    return bits_as<float>(one(bits & 0xffff) | one(bits >> 16) << 16);
  }
}

/// Sums of floats. Kernels that are instantiated for it have no branch.
struct FloatSums {
  /// Calls `body` with a function that makes one word of two: the one that has arrived, and this rank's own.
  template <class Body>
  __device__ void with(Body body) const {
    body(AddFloats());
  }
};

/// Any reduction. Kernels choose the loop by its members.
struct AnyReduction {
  Reduction is;  ///< the type of elements, and the operation

  /// See FloatSums.
  template <class Body>
  __device__ void with(Body body) const {
    with_element([&](auto element) { with_operation(element, body); });
  }

  /// Calls `body` with the kind of the elements.
  template <class Body>
  __device__ void with_element(Body body) const {
    switch (is.type) {
      case DataType::float32:
        return body(Float32());
      case DataType::float16:
        return body(Float16());
      case DataType::bfloat16:
        return body(Bfloat16());
      case DataType::int32:
        return body(Int32());
    }
  }

 private:
  template <class Element, class Body>
  __device__ void with_operation(Element, Body& body) const {
    switch (is.op) {
      case ReduceOp::sum:
      case ReduceOp::average:
        return body(OnWords<Element, Sum>());
      case ReduceOp::product:
        return body(OnWords<Element, Product>());
      case ReduceOp::min:
        return body(OnWords<Element, Min>());
      case ReduceOp::max:
        return body(OnWords<Element, Max>());
    }
  }
};

}  // namespace param_sync::reduction
