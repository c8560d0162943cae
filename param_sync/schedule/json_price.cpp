#include "param_sync/schedule/json_price.hpp"

#include "param_sync/schedule/schedule.hpp"

#include <fmt/format.h>

#include <vector>

namespace param_sync::schedule {
namespace {

// Bytes that glibc's allocator takes for each kind of value, on 64-bit machines.
constexpr std::uint64_t kObjectBytes = 64;   // a map without entries
constexpr std::uint64_t kArrayBytes = 32;    // a vector
constexpr std::uint64_t kMemberBytes = 96;   // an entry of a map: a name of up to 15 characters, and a value
constexpr std::uint64_t kElementBytes = 48;  // an element of a vector; while it grows, it has old and new storage
constexpr std::uint64_t kStringBytes = 48;   // a string of up to 15 characters
constexpr std::size_t kInlineMax = 15;       // characters that a string holds without an allocation

/// Returns the index after the closing quotation mark of a string. `at` is the index after its opening one.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return at + 1;
}

}  // namespace

std::uint64_t parsed_bytes(std::string_view text) {
  std::uint64_t bytes = 0;
  std::vector<bool> in_array;  // for each open bracket, the innermost last: true for an array, false for an object
  for (std::size_t at = 0; at < text.size();) {
    const char letter = text[at++];
    if (letter == '"') {
      const std::size_t end = end_of_string(text, at);
      bytes += kStringBytes + (end - at > kInlineMax ? end - at : 0);
      at = end;
    } else if (letter == '{' || letter == '[') {
      in_array.push_back(letter == '[');
      bytes += letter == '[' ? kArrayBytes + kElementBytes : kObjectBytes;
    } else if (letter == '}' || letter == ']') {
      if (!in_array.empty()) in_array.pop_back();
    } else if (letter == ':') {
      bytes += kMemberBytes - kStringBytes;  // the name is counted as a string
    } else if (letter == ',' && !in_array.empty() && in_array.back()) {
      bytes += kElementBytes;
    }
  }
  return bytes;
}

void require_parsable(std::string_view text, const std::string& name) {
  const std::uint64_t bytes = parsed_bytes(text);
  if (bytes <= kParsedBytesMax) return;
  throw Error(fmt::format("{} has so many values that reading it would take {} MiB, more than {}: make it smaller",
                          name, (bytes >> 20) + 1, kParsedBytesMax >> 20));
}

}  // namespace param_sync::schedule
