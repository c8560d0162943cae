#pragma once
/// @file Bodies in chunks (RFC 9112, section 7.1), decoded in place while they arrive.

#include "examples/http_server/request.cuh"

namespace http {

/// Where a decoder stands in a buffer: it reads at `read`, and writes the body's bytes at `write`, which is never ahead
/// of it.
struct ChunkPositions {
  std::size_t read;
  std::size_t write;
};

class ChunkDecoder {
 public:
  /// Decodes what there is until `end`. kMoreNeeded (everything is read), kComplete (`read` is after the body), 400,
  /// 413 or 431.
  GPUSOCK_FN int decode(char* buffer, ChunkPositions& at, std::size_t end, std::size_t body_bytes_max) {
    while (at.read < end) {
      if (part_ == Part::data) {
        copy_data(buffer, at, end);
        continue;
      }
      const int status = step(buffer[at.read++], body_bytes_max);
      if (status != kMoreNeeded) return status;
    }
    return kMoreNeeded;
  }

 private:
  enum class Part : std::uint8_t {
    first_digit,
    digits,
    blanks,
    extension,
    size_end,  // the line with the chunk's size
    data,
    data_return,
    data_end,
    trailer,
    trailer_name,
    trailer_value,
    trailer_end,  // lines after the last chunk
    end
  };

  GPUSOCK_FN void copy_data(char* buffer, ChunkPositions& at, std::size_t end) {
    const std::size_t bytes = left_ < end - at.read ? left_ : end - at.read;
    if (at.write != at.read) {
      for (std::size_t i = 0; i < bytes; ++i) buffer[at.write + i] = buffer[at.read + i];  // forward: they may overlap
    }
    at.read += bytes;
    at.write += bytes;
    left_ -= bytes;
    if (left_ == 0) part_ = Part::data_return;
  }

  GPUSOCK_FN static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char small = lower(c);
    return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
  }

  GPUSOCK_FN int next(Part part) {
    part_ = part;
    return kMoreNeeded;
  }

  GPUSOCK_FN int take_digit(int digit, std::size_t body_bytes_max) {
    left_ = left_ * 16 + static_cast<std::size_t>(digit);
    return body_ + left_ > body_bytes_max ? 413 : next(Part::digits);  // long before it could overflow
  }

  /// Behind the size: blanks are allowed only in front of an extension.
  GPUSOCK_FN int after_size(char c) {
    if (c == ';') return next(Part::extension);
    if (c != ' ' && c != '\t') return 400;
    return ++overhead_ > kHeadBytesMax ? 431 : next(Part::blanks);
  }

  /// Extensions and trailers are ignored, if their characters are valid in a line.
  GPUSOCK_FN int rest_of_line(char c, Part here, Part at_return) {
    if (c == '\r') return next(at_return);
    if (!is_field_char(c)) return 400;
    return ++overhead_ > kHeadBytesMax ? 431 : next(here);
  }

  GPUSOCK_FN int step(char c, std::size_t body_bytes_max) {
    switch (part_) {
      case Part::first_digit:
        left_ = 0;
        return hex_digit(c) < 0 ? 400 : take_digit(hex_digit(c), body_bytes_max);
      case Part::digits:
        if (hex_digit(c) >= 0) return ++overhead_ > kHeadBytesMax ? 431 : take_digit(hex_digit(c), body_bytes_max);
        if (c == '\r') return next(Part::size_end);
        return after_size(c);
      case Part::blanks:
        return after_size(c);
      case Part::extension:
        return rest_of_line(c, Part::extension, Part::size_end);
      case Part::size_end:
        body_ += left_;
        return c != '\n' ? 400 : next(left_ == 0 ? Part::trailer : Part::data);
      case Part::data_return:
        return c != '\r' ? 400 : next(Part::data_end);
      case Part::data_end:
        return c != '\n' ? 400 : next(Part::first_digit);
      case Part::trailer:
        return c == '\r' ? next(Part::end) : is_token_char(c) ? next(Part::trailer_name) : 400;
      case Part::trailer_name:
        if (c == ':') return next(Part::trailer_value);
        return !is_token_char(c) ? 400 : ++overhead_ > kHeadBytesMax ? 431 : kMoreNeeded;
      case Part::trailer_value:
        return rest_of_line(c, Part::trailer_value, Part::trailer_end);
      case Part::trailer_end:
        return c != '\n' ? 400 : next(Part::trailer);
      case Part::end:
        return c != '\n' ? 400 : kComplete;
      case Part::data:
        break;  // decode() copies it
    }
    return 400;
  }

  Part part_ = Part::first_digit;
  std::size_t left_ = 0;      // of this chunk's data
  std::size_t body_ = 0;      // the sizes of all chunks so far
  std::size_t overhead_ = 0;  // bytes of extensions, trailers and leading zeros, which have no other bound
};

}  // namespace http
