#pragma once
/// @file RESP2, the protocol of Redis: the elements of a reply. Pure functions for kernels and host threads alike.

#include "gpusock/text.cuh"

namespace redis {

using gpusock::Text;

enum class Element : std::uint8_t {
  broken,   ///< not RESP
  simple,   ///< +OK
  error,    ///< -ERR ...
  integer,  ///< :1
  bulk,     ///< $5: 5 bytes and a line end follow
  nil,      ///< $-1 or *-1
  array     ///< *n: n elements follow
};

/// The first line of an element.
struct Head {
  Element element;
  Text text;            ///< what follows the first character
  std::int64_t number;  ///< of integer, bulk and array
};

inline constexpr std::size_t kLineBytesMax = 4096;
inline constexpr std::int64_t kNumberMax = std::int64_t{1} << 40;  // no valid reply has a larger one

/// Parses a `line` without its end, which is a carriage return and a line feed.
GPUSOCK_FN inline Head parse_head(Text line) {
  Head head{Element::broken, {"", 0}, 0};
  if (line.bytes == 0) return head;
  head.text = line.from(1);
  if (line[0] == '+') head.element = Element::simple;
  if (line[0] == '-') head.element = Element::error;
  if (line[0] != ':' && line[0] != '$' && line[0] != '*') return head;
  if (!gpusock::parse_number(head.text, head.number) || head.number > kNumberMax || head.number < -kNumberMax)
    return head;
  if (line[0] == ':') {
    head.element = Element::integer;
  } else if (head.number >= 0) {
    head.element = line[0] == '$' ? Element::bulk : Element::array;
  } else if (head.number == -1) {
    head.element = Element::nil;
  }
  return head;
}

}  // namespace redis
