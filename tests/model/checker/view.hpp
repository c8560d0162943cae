#pragma once
/// @file What a thread (or a message) knows: how far every thread has come, and the oldest value of each word it may
/// still read.

#include <algorithm>
#include <array>
#include <cstdint>

namespace gpusock::model {

inline constexpr int kThreadsMax = 5;
inline constexpr int kLocationsMax = 96;

/// A value's position in its word's modification order. Between two there is room for stores that come to stand there
/// later.
using Stamp = std::uint32_t;

struct View {
  std::array<std::uint32_t, kThreadsMax> clock{};  ///< of each thread: what it did up to here happened before
  std::array<Stamp, kLocationsMax> seen{};         ///< by location: nothing older may be read

  void join(const View& other, int locations) {
    for (int i = 0; i < kThreadsMax; ++i) clock[i] = std::max(clock[i], other.clock[i]);
    for (int i = 0; i < locations; ++i) seen[i] = std::max(seen[i], other.seen[i]);
  }
};

enum class Order : std::uint8_t { relaxed, acquire, release, acq_rel, seq_cst };

constexpr bool acquires(Order order) { return order == Order::acquire || order >= Order::acq_rel; }
constexpr bool releases(Order order) { return order >= Order::release; }

constexpr const char* to_string(Order order) {
  constexpr const char* kNames[] = {"relaxed", "acquire", "release", "acq_rel", "seq_cst"};
  return kNames[static_cast<int>(order)];
}

}  // namespace gpusock::model
