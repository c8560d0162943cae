#pragma once
/// @file Random numbers that are the same on every machine and standard library (std:: distributions are not).

#include <cstdint>
#include <random>

namespace param_sync {

class Random {
 public:
  explicit Random(std::uint64_t seed) : bits_(seed) {}

  /// A whole number from 0 to `limit` - 1. Its bias, below limit / 2^64, does not matter here.
  std::uint64_t below(std::uint64_t limit) { return bits_() % limit; }

  /// A number from -1 up to, but not including, 1.
  float symmetric() { return static_cast<float>(bits_() >> 40) * 0x1p-23f - 1.0f; }

 private:
  std::mt19937_64 bits_;  // its sequence is fixed by the C++ standard
};

}  // namespace param_sync
