#pragma once
/// @file Writes floats into the words of a message, and reads them, piece by piece: a piece may begin and end within a
/// block, at any word. param_sync/codec/wire_format.hpp has the formats.

#include "param_sync/codec/wire_format.hpp"

#include "gpusock/device.cuh"

#include <cstdint>

namespace param_sync::codec {

/// Calls `call` with an object of the format's type, and returns what it returns.
template <class Call>
__device__ inline auto with_format(WireFormat format, Call call) {
  switch (format) {
    case WireFormat::bfloat16:
      return call(Bfloat16Format());
    case WireFormat::float16:
      return call(Float16Format());
    case WireFormat::int8:
      return call(Int8Format());
    case WireFormat::float32:
      break;
  }
  return call(Float32Format());
}

/// The floats of a message: rows of equal length, one after the other.
struct MessageRows {
  std::uint64_t rows = 0;    ///< how many there are
  std::uint64_t floats = 0;  ///< of a row
};

/// What a piece of a message needs to know of the words that came before it.
struct BeforePiece {
  std::uint32_t scale = 0;  ///< the word that is the last block's scale
};

/// Where words of a message lie. All members can be called by each thread.
template <class Format>
class Packed {
  using Block = Blocks<Format>;

 public:
  /// Of a message with these rows.
  __device__ explicit Packed(const MessageRows& of)
      : of_(of),
        row_words_(Block::words_of(of.floats)),
        row_blocks_((of.floats + Block::kFloats - 1) / Block::kFloats) {}

  /// Words of the whole message.
  __device__ std::uint64_t words() const { return of_.rows * row_words_; }

  /// Calls value(row, i, float) for the floats in word `i` of a piece: float number i of a row. The piece begins with
  /// word `first` of the message.
  template <class Value>
  __device__ void unpack(const std::uint32_t* words, std::uint64_t first, std::uint64_t i, const BeforePiece& before,
                         Value value) const {
    const Place at = place_of(first + i);
    const std::uint64_t of_block = at.word % Block::kWords;
    if (Format::kHasScale && of_block == 0) return;
    const std::uint64_t begin = at.word / Block::kWords * Block::kFloats + (of_block - Block::kHead) * Format::kFloats;
    const float scale = Format::kHasScale ? scale_at(words, i, of_block, before) : 1;
    for (unsigned k = 0; k < Format::kFloats && begin + k < of_.floats; ++k) {
      value(at.row, begin + k, Format::unpack(words[i], k, scale));
    }
  }

  /// What the next piece needs to know, after one of `count` words, which is not empty.
  __device__ BeforePiece after(const std::uint32_t* words, std::uint64_t first, std::uint64_t count,
                               const BeforePiece& before) const {
    BeforePiece next = before;
    if constexpr (Format::kHasScale) {
      const std::uint64_t last = count - 1, behind = place_of(first + last).word % Block::kWords;
      if (behind <= last) next.scale = words[last - behind];
    }
    return next;
  }

  /// Writes words [first, first + count) of the message. Threads share the work: this is thread `rank` of `size`.
  ///
  /// value(row, i): float number i of a row. sent(row, i, float): is called with each float as it is received, if it is
  /// in these words. `before`: of the words before, if values may have changed since.
  template <class Value, class Sent>
  __device__ void pack(std::uint64_t first, std::uint64_t count, std::uint32_t* to, unsigned rank, unsigned size,
                       const BeforePiece* before, Value value, Sent sent) const {
    const std::uint64_t end = first + count, last = block_of(end - 1);
    for (std::uint64_t block = block_of(first) + rank; block <= last; block += size) {
      const std::uint64_t row = row_blocks_ == 1 ? block : block / row_blocks_, of_row = block - row * row_blocks_;
      std::uint64_t word = row * row_words_ + of_row * Block::kWords;  // the block's first one
      const std::uint64_t begin = of_row * Block::kFloats, floats = min(Block::kFloats, of_.floats - begin);
      float scale = 1;
      if constexpr (Format::kHasScale) {
        const bool is_cut = word < first;
        scale = is_cut && before != nullptr ? reduction::bits_as<float>(before->scale)
                                            : scale_of(floats, [&](std::uint64_t i) { return value(row, begin + i); });
        if (!is_cut && word < end) to[word - first] = reduction::bits_as<std::uint32_t>(scale);
        ++word;
      }
      for (std::uint64_t i = 0; i < floats; i += Format::kFloats, ++word) {
        if (word < first || word >= end) continue;
        std::uint32_t packed = 0;
        for (unsigned k = 0; k < Format::kFloats && i + k < floats; ++k) {
          const std::uint32_t bits = Format::pack(value(row, begin + i + k), k, scale);
          packed |= bits;
          sent(row, begin + i + k, Format::unpack(bits, k, scale));
        }
        to[word - first] = packed;
      }
    }
  }

 private:
  struct Place {
    std::uint64_t row, word;  ///< the word's number in its row
  };
  __device__ Place place_of(std::uint64_t word) const {
    if (of_.rows == 1) return {0, word};  // no division
    return {word / row_words_, word % row_words_};
  }

  /// The block of a word, counted in the whole message.
  __device__ std::uint64_t block_of(std::uint64_t word) const {
    const Place at = place_of(word);
    return at.row * row_blocks_ + at.word / Block::kWords;
  }

  __device__ static float scale_at(const std::uint32_t* words, std::uint64_t i, std::uint64_t of_block,
                                   const BeforePiece& before) {
    return reduction::bits_as<float>(i >= of_block ? words[i - of_block] : before.scale);
  }

  /// The scale of a block, from its largest absolute value; what is not a number is larger than all numbers.
  template <class Value>
  __device__ static float scale_of(std::uint64_t floats, Value value) {
    std::uint32_t largest = 0;
    for (std::uint64_t i = 0; i < floats; ++i) {
      largest = max(largest, reduction::bits_as<std::uint32_t>(value(i)) & 0x7fff'ffffu);
    }
    return reduction::bits_as<float>(largest) / Int8Format::kMost;
  }

  MessageRows of_;
  std::uint64_t row_words_;   ///< words of a row
  std::uint64_t row_blocks_;  ///< blocks of a row
};

}  // namespace param_sync::codec
