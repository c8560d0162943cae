#pragma once
/// @file Texts without a terminating zero: pieces of what a client sent, and what is written for it.

#include "gpusock/types.hpp"

namespace http {

/// A piece of text that somebody else owns.
struct Text {
  const char* data;
  std::size_t bytes;

  GPUSOCK_FN char operator[](std::size_t index) const { return data[index]; }
  GPUSOCK_FN Text from(std::size_t index) const { return {data + index, bytes - index}; }
  GPUSOCK_FN Text until(std::size_t index) const { return {data, index}; }
};

template <std::size_t kBytes>
GPUSOCK_FN constexpr Text text(const char (&literal)[kBytes]) {
  return {literal, kBytes - 1};
}

GPUSOCK_FN_APART inline bool same(Text a, Text b) {
  if (a.bytes != b.bytes) return false;
  for (std::size_t i = 0; i < a.bytes; ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

GPUSOCK_FN inline char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

GPUSOCK_FN_APART inline bool same_in_any_case(Text a, Text b) {
  if (a.bytes != b.bytes) return false;
  for (std::size_t i = 0; i < a.bytes; ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

GPUSOCK_FN inline bool starts_with(Text a, Text start) {
  return a.bytes >= start.bytes && same(a.until(start.bytes), start);
}

/// Where `c` is first; the text's size if it is nowhere.
GPUSOCK_FN_APART inline std::size_t find(Text in, char c) {
  std::size_t i = 0;
  while (i < in.bytes && in[i] != c) ++i;
  return i;
}

/// Without the blanks and tabs at both ends.
GPUSOCK_FN_APART inline Text trimmed(Text from) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (from.bytes != 0 && blank(from[0])) from = from.from(1);
  while (from.bytes != 0 && blank(from[from.bytes - 1])) --from.bytes;
  return from;
}

/// A number in decimal digits and nothing else; what does not fit is the largest there is. False: it is none.
GPUSOCK_FN_APART inline bool read_number(Text from, std::uint64_t& number) {
  constexpr std::uint64_t kMax = ~std::uint64_t{0};
  number = 0;
  for (std::size_t i = 0; i < from.bytes; ++i) {
    if (from[i] < '0' || from[i] > '9') return false;
    const auto digit = static_cast<std::uint64_t>(from[i] - '0');
    number = number > (kMax - digit) / 10 ? kMax : number * 10 + digit;
  }
  return from.bytes != 0;
}

/// Writes text behind text into a buffer, as long as there is room.
class Writer {
 public:
  GPUSOCK_FN Writer(char* to, std::size_t room) : to_(to), room_(room) {}

  GPUSOCK_FN_APART Writer& operator<<(Text text) {
    for (std::size_t i = 0; i < text.bytes && bytes_ < room_; ++i) to_[bytes_++] = text[i];
    return *this;
  }

  template <std::size_t kBytes>
  GPUSOCK_FN Writer& operator<<(const char (&literal)[kBytes]) {
    return *this << text(literal);
  }

  GPUSOCK_FN_APART Writer& operator<<(std::uint64_t number) {
    char digits[20];
    std::size_t first = sizeof digits;
    do {
      digits[--first] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    return *this << Text{digits + first, sizeof digits - first};
  }

  GPUSOCK_FN std::size_t bytes() const { return bytes_; }

 private:
  char* to_;
  std::size_t room_;
  std::size_t bytes_ = 0;
};

}  // namespace http
