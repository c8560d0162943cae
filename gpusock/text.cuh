#pragma once
/// @file Text in kernels: functions that split and compare text from a peer, read and write numbers, and build text.
/// They are pure functions for kernels and host threads; each thread that calls one works by itself.

#include "ringbuf/annotations.hpp"

#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace gpusock {

/// A piece of text. It does not own its memory, and has no terminating zero.
struct Text {
  const char* data;   ///< the first character
  std::size_t bytes;  ///< number of characters

  /// Does not initialize the members, so that a Text may lie in shared memory.
  Text() = default;
  /// The `count` characters that begin at `from`.
  GPUSOCK_FN constexpr Text(const char* from, std::size_t count) : data(from), bytes(count) {}
  /// Converts a literal, so that a program can write same(word, "GET").
  template <std::size_t kBytes>
  GPUSOCK_FN constexpr Text(const char (&literal)[kBytes]) : data(literal), bytes(kBytes - 1) {}

  /// The character at `index`, which must be less than `bytes`.
  GPUSOCK_FN char operator[](std::size_t index) const { return data[index]; }
  GPUSOCK_FN Text from(std::size_t index) const {
    return {data + index, bytes - index};
  }                                                                         ///< the text from `index` to its end
  GPUSOCK_FN Text until(std::size_t index) const { return {data, index}; }  ///< the text before `index`
};

/// A literal as Text.
template <std::size_t kBytes>
GPUSOCK_FN constexpr Text text(const char (&literal)[kBytes]) {
  return {literal, kBytes - 1};
}

/// True if both have the same bytes.
GPUSOCK_FN_APART inline bool same(Text a, Text b) {
  if (a.bytes != b.bytes) return false;
  for (std::size_t i = 0; i < a.bytes; ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

/// The ASCII letter in lower case; any other character as it is.
GPUSOCK_FN inline char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

/// True if both have the same bytes once ASCII letters are in lower case.
GPUSOCK_FN_APART inline bool same_in_any_case(Text a, Text b) {
  if (a.bytes != b.bytes) return false;
  for (std::size_t i = 0; i < a.bytes; ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

/// True if the first bytes of `a` are those of `start`.
GPUSOCK_FN inline bool starts_with(Text a, Text start) {
  return a.bytes >= start.bytes && same(a.until(start.bytes), start);
}

/// The index of the first `c`, or the text's size if there is none.
GPUSOCK_FN_APART inline std::size_t find(Text in, char c) {
  std::size_t i = 0;
  while (i < in.bytes && in[i] != c) ++i;
  return i;
}

/// The text without the blanks and tabs at both ends.
GPUSOCK_FN_APART inline Text trimmed(Text from) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (from.bytes != 0 && blank(from[0])) from = from.from(1);
  while (from.bytes != 0 && blank(from[from.bytes - 1])) --from.bytes;
  return from;
}

/// Removes the first word, and the blanks around it, from `from`, and returns the word. A word ends at a blank. Returns
/// an empty text if there is no word.
GPUSOCK_FN_APART inline Text take_word(Text& from) {
  std::size_t begin = 0;
  while (begin < from.bytes && from[begin] == ' ') ++begin;
  from = from.from(begin);
  const Text word = from.until(find(from, ' '));
  from = from.from(word.bytes);
  while (from.bytes != 0 && from[0] == ' ') from = from.from(1);
  return word;
}

/// A header field, as of HTTP or mail: `name: value`.
struct Field {
  Text name;   ///< the text before the first colon
  Text value;  ///< the text after it, without the blanks and tabs around it

  /// True if the field has this name. Upper and lower case are the same.
  GPUSOCK_FN bool is(Text other) const { return same_in_any_case(name, other); }
};

/// Splits a line into a field's name and value. False if there is no colon, or no name before it.
GPUSOCK_FN_APART inline bool parse_field(Text line, Field& field) {
  const std::size_t colon = find(line, ':');
  if (colon == line.bytes || colon == 0) return false;
  field.name = line.until(colon);
  field.value = trimmed(line.from(colon + 1));
  return true;
}

/// Reads a number. Returns true if the text consists of digits and nothing else. `base`: from 2 to 36; base 16 also has
/// the digits a to f and A to F, and no prefix. A number that does not fit becomes the largest value.
GPUSOCK_FN_APART inline bool parse_number(Text from, std::uint64_t& number, unsigned base = 10) {
  constexpr std::uint64_t kMax = ~std::uint64_t{0};
  number = 0;
  for (std::size_t i = 0; i < from.bytes; ++i) {
    const char c = lower(from[i]);
    const bool is_letter = c >= 'a' && c <= 'z';
    if (!is_letter && (c < '0' || c > '9')) return false;
    const auto digit = static_cast<unsigned>(is_letter ? c - 'a' + 10 : c - '0');
    if (digit >= base) return false;
    number = number > (kMax - digit) / base ? kMax : number * base + digit;
  }
  return from.bytes != 0;
}

/// Reads a number. Returns true if the text consists of digits, with an optional sign `-`, and nothing else. A number
/// that does not fit becomes the largest or the smallest value.
GPUSOCK_FN_APART inline bool parse_number(Text from, std::int64_t& number) {
  constexpr auto kMax = ~std::uint64_t{0} >> 1;
  const bool negative = from.bytes != 0 && from[0] == '-';
  std::uint64_t size = 0;
  if (!parse_number(negative ? from.from(1) : from, size)) return false;
  if (negative) {
    number = size > kMax ? -static_cast<std::int64_t>(kMax) - 1 : -static_cast<std::int64_t>(size);
  } else {
    number = static_cast<std::int64_t>(size > kMax ? kMax : size);
  }
  return true;
}

/// A type whose values are written as numbers.
template <class T>
concept Integer = std::is_integral_v<T> && !std::is_same_v<T, char> && !std::is_same_v<T, bool>;

/// A number in decimal digits, with `-` before a negative one.
class Decimal {
 public:
  /// Any integer of at most 64 bits.
  template <Integer Number>
  GPUSOCK_FN explicit Decimal(Number number) {
    const bool negative = std::is_signed_v<Number> && number < Number{0};
    auto size = static_cast<std::uint64_t>(number);
    if (negative) size = ~size + 1;
    do {
      digits_[--first_] = static_cast<char>('0' + size % 10);
      size /= 10;
    } while (size != 0);
    if (negative) digits_[--first_] = '-';
  }

  /// The number as text. It is valid as long as this object.
  GPUSOCK_FN Text text() const { return {digits_ + first_, sizeof digits_ - first_}; }

 private:
  char digits_[20];  // enough for the longest number with its sign
  unsigned first_ = sizeof digits_;
};

/// The name of an error that a socket call lists: "ECONNRESET" for -ECONNRESET and for ECONNRESET. "ok" for 0; "error"
/// for any other number.
GPUSOCK_FN_APART inline Text error_name(std::int64_t error) {
  switch (error < 0 ? -error : error) {
    case 0:
      return text("ok");
    case EACCES:
      return text("EACCES");
    case EADDRINUSE:
      return text("EADDRINUSE");
    case EADDRNOTAVAIL:
      return text("EADDRNOTAVAIL");
    case EAFNOSUPPORT:
      return text("EAFNOSUPPORT");
    case EAGAIN:
      return text("EAGAIN");
    case EALREADY:
      return text("EALREADY");
    case EBADF:
      return text("EBADF");
    case EBUSY:
      return text("EBUSY");
    case ECANCELED:
      return text("ECANCELED");
    case ECONNREFUSED:
      return text("ECONNREFUSED");
    case ECONNRESET:
      return text("ECONNRESET");
    case EHOSTUNREACH:
      return text("EHOSTUNREACH");
    case EINVAL:
      return text("EINVAL");
    case EIO:
      return text("EIO");
    case EMFILE:
      return text("EMFILE");
    case EMSGSIZE:
      return text("EMSGSIZE");
    case ENETUNREACH:
      return text("ENETUNREACH");
    case ENOBUFS:
      return text("ENOBUFS");
    case ENODEV:
      return text("ENODEV");
    case ENOENT:
      return text("ENOENT");
    case ENOMEM:
      return text("ENOMEM");
    case ENOPROTOOPT:
      return text("ENOPROTOOPT");
    case ESHUTDOWN:
      return text("ESHUTDOWN");
    case ENOTCONN:
      return text("ENOTCONN");
    case EPIPE:
      return text("EPIPE");
    case EPROTO:
      return text("EPROTO");
    case EPROTONOSUPPORT:
      return text("EPROTONOSUPPORT");
    case EPROTOTYPE:
      return text("EPROTOTYPE");
    case ETIMEDOUT:
      return text("ETIMEDOUT");
    default:
      return text("error");
  }
}

/// Appends text to a buffer as long as there is room; text that does not fit is cut off. One thread uses it.
class TextBuffer {
 public:
  /// Writes to `to`, which has room for `room` bytes.
  GPUSOCK_FN TextBuffer(char* to, std::size_t room) : to_(to), room_(room) {}

  /// Appends a text.
  GPUSOCK_FN_APART TextBuffer& operator<<(Text text) {
    for (std::size_t i = 0; i < text.bytes && bytes_ < room_; ++i) to_[bytes_++] = text[i];
    return *this;
  }
  /// Appends a literal.
  template <std::size_t kBytes>
  GPUSOCK_FN TextBuffer& operator<<(const char (&literal)[kBytes]) {
    return *this << gpusock::text(literal);
  }
  /// Appends a character.
  template <std::same_as<char> Char>  // else bool and floating-point numbers would become characters
  GPUSOCK_FN TextBuffer& operator<<(Char c) {
    return *this << Text{&c, 1};
  }
  /// Appends a number in decimal digits.
  template <Integer Number>
  GPUSOCK_FN TextBuffer& operator<<(Number number) {
    return *this << Decimal(number).text();
  }

  GPUSOCK_FN std::size_t bytes() const { return bytes_; }   ///< number of bytes in the buffer
  GPUSOCK_FN Text text() const { return {to_, bytes_}; }    ///< all that is in the buffer
  GPUSOCK_FN bool full() const { return bytes_ == room_; }  ///< true if text may have been cut off

 private:
  char* to_;
  std::size_t room_;
  std::size_t bytes_ = 0;
};

}  // namespace gpusock
