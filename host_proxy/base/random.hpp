#pragma once
/// @file Bytes that cannot be guessed, from the operating system.

#include "plain_types/error.hpp"

#include <sys/random.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace gpusock::proxy {

template <std::size_t count>
std::array<std::uint8_t, count> random_bytes() {
  std::array<std::uint8_t, count> bytes;
  if (getrandom(bytes.data(), count, 0) != static_cast<ssize_t>(count)) throw Error(errno, "getrandom");
  return bytes;
}

template <std::size_t count>
std::string to_hex(const std::array<std::uint8_t, count>& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace gpusock::proxy
