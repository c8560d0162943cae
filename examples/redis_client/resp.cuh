#pragma once
/// @file RESP2, the protocol of Redis: what one reply is made of. Pure functions for kernels and host threads alike.

#include "gpusock/text.cuh"
#include "gpusock/types.hpp"

namespace redis {

enum class Element : std::uint8_t {
  incomplete,  ///< more bytes are needed
  broken,      ///< this is not RESP
  simple,      ///< +OK
  error,       ///< -ERR ...
  integer,     ///< :1
  bulk,        ///< $5 hello
  nil,         ///< $-1 or *-1
  array        ///< *n: n elements follow
};

struct Parsed {
  Element element;
  std::size_t bytes;  ///< of the element, with its line ends
  const char* text;   ///< of simple, error and bulk
  std::size_t text_bytes;
  std::int64_t number;  ///< of integer and array; of an incomplete bulk its size, if that is known
};

inline constexpr std::size_t kLineBytesMax = 4096;
inline constexpr std::int64_t kNumberMax = std::int64_t{1} << 40;  // beyond it nothing that we asked for can be

/// A number that can be the size of something that we asked for.
GPUSOCK_FN inline bool read_number(gpusock::Text text, std::int64_t& number) {
  return gpusock::parse_number(text, number) && number <= kNumberMax && number >= -kNumberMax;
}

/// Reads the element at the start of `data`.
GPUSOCK_FN inline Parsed parse_element(const char* data, std::size_t bytes) {
  Parsed parsed{Element::incomplete, 0, nullptr, 0, 0};
  std::size_t end = 1;
  while (end < bytes && data[end] != '\r' && end < kLineBytesMax) ++end;
  if (end == kLineBytesMax) parsed.element = Element::broken;
  if (end + 1 >= bytes || parsed.element == Element::broken) return parsed;
  parsed.bytes = end + 2;
  parsed.text = data + 1;
  parsed.text_bytes = end - 1;
  const bool numeric = data[0] == ':' || data[0] == '$' || data[0] == '*';
  parsed.element = Element::broken;
  if (data[end + 1] != '\n' || (numeric && !read_number({parsed.text, parsed.text_bytes}, parsed.number)))
    return parsed;
  if (data[0] == '+') parsed.element = Element::simple;
  if (data[0] == '-') parsed.element = Element::error;
  if (data[0] == ':') parsed.element = Element::integer;
  if (data[0] != '$' && data[0] != '*') return parsed;
  if (parsed.number < 0) {
    parsed.element = parsed.number == -1 ? Element::nil : Element::broken;
  } else if (data[0] == '*') {
    parsed.element = Element::array;
  } else {
    const std::size_t line = parsed.bytes;
    parsed.text = data + line;
    parsed.text_bytes = static_cast<std::size_t>(parsed.number);
    parsed.bytes = line + parsed.text_bytes + 2;
    if (parsed.bytes > bytes) return {Element::incomplete, 0, nullptr, 0, parsed.number};
    const bool ended = parsed.text[parsed.text_bytes] == '\r' && parsed.text[parsed.text_bytes + 1] == '\n';
    parsed.element = ended ? Element::bulk : Element::broken;
  }
  return parsed;
}

}  // namespace redis
