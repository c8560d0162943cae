#pragma once
/// @file The one source of chance of a simulated run: same seed, same choices.

#include <cstdint>

namespace gpusock::sim {

/// splitmix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t operator()() {
    std::uint64_t word = state_ += 0x9e3779b97f4a7c15u;
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
    word = (word ^ word >> 27) * 0x94d049bb133111ebu;
    return word ^ word >> 31;
  }
  /// 0 to limit - 1; limit > 0.
  std::uint64_t below(std::uint64_t limit) { return operator()() % limit; }
  /// first to last.
  std::uint64_t between(std::uint64_t first, std::uint64_t last) { return first + below(last - first + 1); }
  /// first to last, each order of magnitude alike.
  std::uint64_t magnitude(std::uint64_t first, std::uint64_t last) {
    std::uint64_t orders = 0;
    while (first << orders < last) ++orders;
    const std::uint64_t order = below(orders + 1);
    const std::uint64_t value = (first << order) + below((first << order) + 1);
    return value < last ? value : last;
  }
  bool one_in(std::uint64_t count) { return below(count) == 0; }
  bool percent(std::uint64_t share) { return below(100) < share; }

 private:
  std::uint64_t state_;
};

}  // namespace gpusock::sim
