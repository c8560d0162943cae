#pragma once
/// @file Random numbers that are the same on every machine and standard library (std:: distributions are not).

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

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

/// Brings items into a random order (Fisher and Yates).
template <class Item>
void shuffle(std::vector<Item>& items, Random& random) {
  for (std::size_t left = items.size(); left > 1; --left) std::swap(items[left - 1], items[random.below(left)]);
}

}  // namespace param_sync
