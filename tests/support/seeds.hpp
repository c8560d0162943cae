#pragma once
/// @file Which seeds a simulation in a GoogleTest program runs: GPUSOCK_TEST_SEEDS=FIRST..LAST or =SEED, or its own
/// few.

#include <cstdint>
#include <cstdlib>

namespace gpusock {

struct Seeds {
  std::uint64_t first = 1;
  std::uint64_t last = 1;
};

inline Seeds seeds_or(const Seeds& usual) {
  const char* const text = std::getenv("GPUSOCK_TEST_SEEDS");
  if (text == nullptr) return usual;
  char* end = nullptr;
  Seeds range;
  range.first = range.last = std::strtoull(text, &end, 10);
  if (end[0] == '.' && end[1] == '.') range.last = std::strtoull(end + 2, nullptr, 10);
  return range;
}

}  // namespace gpusock
