#pragma once
/// @file Elements of tensors as numbers, and what operations make of two of them. The results do not depend on which of
/// the two comes first, bit for bit. So ranks that add the same two numbers in different orders get the same result.
/// Only sums and products of float32 that are not a number may differ in bits that mean nothing.

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync::reduction {

/// Returns the bytes of `from` as a value of another type.
template <class To, class From>
GPUSOCK_FN inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

/// An element that is a float32. All kinds of elements have these members.
struct Float32 {
  using Number = float;        ///< the type in which operations compute
  using Bits = std::uint32_t;  ///< an element in memory
  /// The element as a number.
  GPUSOCK_FN static Number number(Bits bits) { return bits_as<float>(bits); }
  /// The number as an element.
  GPUSOCK_FN static Bits bits(Number number) { return bits_as<std::uint32_t>(number); }
};

/// Two's complement. Operations compute without sign, so that sums and products wrap.
struct Int32 {
  using Number = std::int32_t;  ///< see Float32
  using Bits = std::uint32_t;   ///< see Float32
  /// See Float32.
  GPUSOCK_FN static Number number(Bits bits) { return static_cast<std::int32_t>(bits); }
  /// See Float32.
  GPUSOCK_FN static Bits bits(Number number) { return static_cast<std::uint32_t>(number); }
};

/// The upper half of a float32.
struct Bfloat16 {
  using Number = float;        ///< see Float32
  using Bits = std::uint16_t;  ///< see Float32
  /// See Float32.
  GPUSOCK_FN static Number number(Bits bits) { return bits_as<float>(std::uint32_t{bits} << 16); }
  /// Rounds to the nearest number, ties to even.
  GPUSOCK_FN static Bits bits(Number number) {
    const auto wide = bits_as<std::uint32_t>(number);
    const std::uint32_t rounded = (wide + 0x7fff + (wide >> 16 & 1)) >> 16;
    return static_cast<std::uint16_t>(number != number ? kNotANumber : rounded);
  }
  static constexpr std::uint32_t kNotANumber = 0x7fc0;  ///< an element that is not a number
};

/// A float16 has 5 bits of exponent (bias 15) and 10 of mantissa; a float32 has 8 (bias 127) and 23.
struct Float16 {
  using Number = float;        ///< see Float32
  using Bits = std::uint16_t;  ///< see Float32

  /// See Float32.
  GPUSOCK_FN static Number number(Bits bits) {
    const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
    const std::uint32_t magnitude = bits & 0x7fffu;
    // The float32 with these bits is too small by 2^112, also if the float16 is subnormal. The product is exact.
    const float scaled = bits_as<float>(magnitude << 13) * 0x1p112f;
    const std::uint32_t finite = bits_as<std::uint32_t>(scaled), special = magnitude << 13 | 0x7f800000u;
    return bits_as<float>(sign | (magnitude >= kInfinity ? special : finite));
  }

  /// Rounds to the nearest number, ties to even. From 65,520 on that is infinity.
  GPUSOCK_FN static Bits bits(Number number) {
    const auto wide = bits_as<std::uint32_t>(number);
    const std::uint32_t sign = wide >> 16 & 0x8000u, magnitude = wide & 0x7fffffffu;
    // The exponent's bias changes by 112. Half of the last place, less one if the last bit is even, rounds.
    const std::uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    // The last bit of 0.5f is 2^-24, the least subnormal float16: the addition rounds to a multiple of it.
    const std::uint32_t subnormal = bits_as<std::uint32_t>(bits_as<float>(magnitude) + 0.5f) - 0x3f000000u;
    std::uint32_t made = magnitude < kLeastNormal ? subnormal : normal;
    if (magnitude >= kTooLarge) made = kInfinity;
    return static_cast<std::uint16_t>(magnitude > 0x7f800000u ? kNotANumber : sign | made);
  }

 private:
  static constexpr std::uint32_t kInfinity = 0x7c00, kNotANumber = 0x7e00;  // of a float16
  static constexpr std::uint32_t kLeastNormal = 113u << 23;                 // 2^-14 as a float32
  static constexpr std::uint32_t kTooLarge = 0x477ff000u;                   // 65,520 as a float32
};

/// Addition.
struct Sum {
  /// The result of two numbers.
  GPUSOCK_FN static float of(float a, float b) { return a + b; }
  /// See above.
  GPUSOCK_FN static std::int32_t of(std::int32_t a, std::int32_t b) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
  }
};

/// Multiplication.
struct Product {
  /// See Sum.
  GPUSOCK_FN static float of(float a, float b) { return a * b; }
  /// See Sum.
  GPUSOCK_FN static std::int32_t of(std::int32_t a, std::int32_t b) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) * static_cast<std::uint32_t>(b));
  }
};

/// IEEE 754-2019's minimum.
struct Min {
  /// See Sum.
  GPUSOCK_FN static std::int32_t of(std::int32_t a, std::int32_t b) { return a < b ? a : b; }
  /// See Sum.
  GPUSOCK_FN static float of(float a, float b) {
    if (a != a || b != b) return bits_as<float>(std::uint32_t{0x7fc00000});
    if (a == b) return bits_as<float>(bits_as<std::uint32_t>(a) | bits_as<std::uint32_t>(b));  // -0 of -0 and +0
    return a < b ? a : b;
  }
};

/// IEEE 754-2019's maximum.
struct Max {
  /// See Sum.
  GPUSOCK_FN static std::int32_t of(std::int32_t a, std::int32_t b) { return a > b ? a : b; }
  /// See Sum.
  GPUSOCK_FN static float of(float a, float b) {
    if (a != a || b != b) return bits_as<float>(std::uint32_t{0x7fc00000});
    if (a == b) return bits_as<float>(bits_as<std::uint32_t>(a) & bits_as<std::uint32_t>(b));  // +0 of -0 and +0
    return a > b ? a : b;
  }
};

}  // namespace param_sync::reduction
