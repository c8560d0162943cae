#pragma once
/// @file The formats in which a store sends floats: each one's size, and how it rounds.

#include "param_sync/reduction/element.hpp"

#include "gpusock/error.hpp"
#include "gpusock/types.hpp"

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

namespace param_sync {

/// How floats are sent. All but float32 round to the nearest number that they have, ties to even.
enum class WireFormat : std::uint8_t {
  float32,   ///< as they are
  bfloat16,  ///< the upper half of a float32: 8 bits of precision, the same range
  float16,   ///< IEEE 754 binary16: 11 bits of precision; from 65,520 on it is infinity, below 6e-8 zero
  int8  ///< an integer from -127 to 127 each, and for each block of 64 floats a float32 by which they are multiplied
};

namespace codec {

/// A format: how many floats a word of 4 bytes holds, and how. With a scale, each block of 64 floats begins with a word
/// that is its scale, and floats are divided by it before they are stored.
struct Float32Format {
  static constexpr unsigned kFloats = 1;    ///< in a word
  static constexpr bool kHasScale = false;  ///< see above
  /// Float `i` of a word. `scale`: of the block.
  GPUSOCK_FN static float unpack(std::uint32_t word, unsigned, float) { return reduction::bits_as<float>(word); }
  /// The bits of a float in a word: it is float number `i` of the word.
  GPUSOCK_FN static std::uint32_t pack(float value, unsigned, float) {
    return reduction::bits_as<std::uint32_t>(value);
  }
};

/// Two floats of 16 bits; the first one is in the lower half.
template <class Element>
struct HalfFormat {
  static constexpr unsigned kFloats = 2;    ///< see Float32Format
  static constexpr bool kHasScale = false;  ///< see Float32Format
  /// See Float32Format.
  GPUSOCK_FN static float unpack(std::uint32_t word, unsigned i, float) {
    return Element::number(static_cast<std::uint16_t>(word >> 16 * i));
  }
  /// See Float32Format.
  GPUSOCK_FN static std::uint32_t pack(float value, unsigned i, float) {
    return std::uint32_t{Element::bits(value)} << 16 * i;
  }
};

/// Four floats of 8 bits; the first one is in the lowest byte. The scale is the block's largest absolute value / 127. A
/// block with a number that is not finite is received as numbers that are not: it is not taken for small ones.
struct Int8Format {
  static constexpr unsigned kFloats = 4;   ///< see Float32Format
  static constexpr bool kHasScale = true;  ///< see Float32Format
  static constexpr float kMost = 127;      ///< the largest number
  /// See Float32Format.
  GPUSOCK_FN static float unpack(std::uint32_t word, unsigned i, float scale) {
    return static_cast<float>(static_cast<std::int8_t>(word >> 8 * i)) * scale;
  }
  /// See Float32Format. With a scale that was another block's, numbers beyond it become the largest one.
  GPUSOCK_FN static std::uint32_t pack(float value, unsigned i, float scale) {
    const float divided = scale > 0 ? value / scale : 0;
    const float bounded = divided > kMost ? kMost : divided < -kMost ? -kMost : divided;
    // The numbers around 1.5 * 2^23 are integers: the sum rounds as it should. Of NaN any integer will do.
    const std::uint32_t integer = reduction::bits_as<std::uint32_t>(bounded + 0x1.8p23f);
    return (integer & 0xff) << 8 * i;
  }
};

using Bfloat16Format = HalfFormat<reduction::Bfloat16>;  ///< see WireFormat
using Float16Format = HalfFormat<reduction::Float16>;    ///< see WireFormat

/// How the floats of a row lie in words: block by block.
template <class Format>
struct Blocks {
  static constexpr std::uint64_t kFloats = Format::kHasScale ? 64 : Format::kFloats;  ///< floats of a block
  static constexpr std::uint64_t kHead = Format::kHasScale ? 1 : 0;                   ///< words in front of its floats
  static constexpr std::uint64_t kWords = kHead + kFloats / Format::kFloats;          ///< words of a block
  /// Words of so many floats. The last block has as many as it needs.
  GPUSOCK_FN static constexpr std::uint64_t words_of(std::uint64_t floats) {
    const std::uint64_t rest = floats % kFloats;
    return floats / kFloats * kWords + (rest == 0 ? 0 : kHead + (rest + Format::kFloats - 1) / Format::kFloats);
  }
};

/// Words of 4 bytes in which so many floats are sent.
GPUSOCK_FN inline std::uint64_t words_of(WireFormat format, std::uint64_t floats) {
  switch (format) {
    case WireFormat::bfloat16:
      return Blocks<Bfloat16Format>::words_of(floats);
    case WireFormat::float16:
      return Blocks<Float16Format>::words_of(floats);
    case WireFormat::int8:
      return Blocks<Int8Format>::words_of(floats);
    case WireFormat::float32:
      break;
  }
  return Blocks<Float32Format>::words_of(floats);
}

}  // namespace codec

/// Returns a format by its name: "fp32", "bf16", "fp16" or "int8". Throws gpusock::Error (EINVAL).
inline WireFormat wire_format_of(std::string_view text) {
  if (text == "fp32") return WireFormat::float32;
  if (text == "bf16") return WireFormat::bfloat16;
  if (text == "fp16") return WireFormat::float16;
  if (text == "int8") return WireFormat::int8;
  throw gpusock::Error(EINVAL, "there is no format \"" + std::string(text) + "\": take fp32, bf16, fp16 or int8");
}

}  // namespace param_sync
