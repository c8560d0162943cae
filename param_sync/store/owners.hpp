#pragma once
/// @file Which rank owns which range of a store.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace param_sync::store {

/// Returns the owner of each range, whose floats are given: the rank that owns the fewest floats so far, the largest
/// ranges first.
inline std::vector<int> owners_of(std::span<const std::uint64_t> floats, int ranks) {
  std::vector<std::size_t> order(floats.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return floats[a] > floats[b]; });
  std::vector<std::uint64_t> owned(static_cast<std::size_t>(ranks));
  std::vector<int> owners(floats.size());
  for (const std::size_t range : order) {
    const auto least = std::min_element(owned.begin(), owned.end());
    owners[range] = static_cast<int>(least - owned.begin());
    *least += std::max<std::uint64_t>(1, floats[range]);
  }
  return owners;
}

}  // namespace param_sync::store
