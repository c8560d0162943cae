#pragma once
// What the litmus tests send, and how much of it.
#include "tests/conformance/bus_litmus.cuh"
#include "tests/conformance/party.cuh"

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace gpusock::conformance {

inline std::vector<std::byte> litmus_pattern() {
  std::mt19937 random(7);
  std::vector<std::byte> pattern(BusLitmus::kPatternBytes);
  for (std::byte& byte : pattern) byte = static_cast<std::byte>(random());
  return pattern;
}

/// Fewer on a CPU: what could go wrong with its caches does so in tests of other links as well.
inline std::uint64_t litmus_messages() {
  constexpr int kMessages = GPUSOCK_KERNELS_ON_CPU ? 1'000 : 20'000;
  return static_cast<std::uint64_t>(scaled(kMessages, 200));
}

}  // namespace gpusock::conformance
