#pragma once
/// @file Bodies of a known length, and in chunks (RFC 9112, section 7.1): what to receive next, and what it means.

#include "examples/http_server/request.cuh"

namespace http {

/// Reads a body piece by piece. The caller receives what next() says, and hands it to take().
class Body {
 public:
  enum class Part : std::uint8_t {
    data,      ///< bytes of the body, left() at most
    data_end,  ///< 2 bytes, after the data of a chunk
    size,      ///< the line before a chunk's data
    trailer    ///< a line after the last chunk
  };

  Body() = default;
  /// A counted body must have a `length` of 1 or more. A chunked body ignores it.
  GPUSOCK_FN Body(BodyKind kind, std::uint64_t length)
      : chunked_(kind == BodyKind::chunked), part_(chunked_ ? Part::size : Part::data), left_(length) {}

  GPUSOCK_FN Part next() const { return part_; }
  GPUSOCK_FN std::size_t left() const { return left_; }
  /// How many bytes of the body have arrived.
  GPUSOCK_FN std::size_t bytes() const { return bytes_; }

  /// Takes lines without their line feed. Returns kMoreNeeded, kComplete, or the status of a refusal: 400, 413 or 431.
  GPUSOCK_FN_APART int take(Text got, std::size_t body_bytes_max) {
    switch (part_) {
      case Part::data:
        return take_data(got.bytes);
      case Part::data_end:
        part_ = Part::size;
        return same(got, "\r\n") ? kMoreNeeded : 400;
      case Part::size:
        return take_size(got, body_bytes_max);
      case Part::trailer:
        return take_trailer(got);
    }
    return 400;
  }

 private:
  GPUSOCK_FN int take_data(std::size_t bytes) {
    bytes_ += bytes;
    left_ -= bytes;
    if (left_ != 0) return kMoreNeeded;
    part_ = Part::data_end;
    return chunked_ ? kMoreNeeded : kComplete;
  }

  GPUSOCK_FN int take_size(Text line, std::size_t body_bytes_max) {
    std::size_t digits = 0;
    while (digits < line.bytes && find(" \t;\r", line[digits]) == 4) ++digits;
    std::uint64_t size = 0;
    if (!parse_number(line.until(digits), size, 16)) return 400;
    if (size > body_bytes_max - bytes_) return 413;
    left_ = size;
    part_ = size != 0 ? Part::data : Part::trailer;
    Text extension = line.from(digits);
    if (!detail::take_return(extension)) return 400;
    overhead_ += digits - 1 + extension.bytes;
    if (extension.bytes == 0) return fits();
    // Blanks are allowed only before an extension, which is ignored.
    extension = trimmed(extension);
    return starts_with(extension, ";") && detail::is_field_value(extension) ? fits() : 400;
  }

  /// Ignores trailers that are valid fields.
  GPUSOCK_FN int take_trailer(Text line) {
    if (!detail::take_return(line)) return 400;
    overhead_ += line.bytes;
    if (line.bytes == 0) return kComplete;
    gpusock::Field field;
    return detail::parse_any_field(line, field) ? fits() : 400;
  }

  GPUSOCK_FN int fits() const { return overhead_ > kHeadBytesMax ? 431 : kMoreNeeded; }

  bool chunked_ = false;
  Part part_ = Part::data;
  std::size_t left_ = 0;      // bytes left of this chunk's data, or of a counted body
  std::size_t bytes_ = 0;     // bytes of the body that have arrived
  std::size_t overhead_ = 0;  // bytes of extensions, trailers and leading zeros, which have no other bound
};

}  // namespace http
