#include "plan/store_ranges.hpp"

#include "param_sync/store/owners.hpp"

#include <cstddef>
#include <cstdint>

namespace param_sync {

std::vector<StoreRange> store_ranges(const Layout& layout, int nodes) {
  std::vector<StoreRange> ranges;
  std::vector<std::uint64_t> floats;
  ranges.reserve(layout.layers.size() * static_cast<std::size_t>(nodes));
  floats.reserve(ranges.capacity());
  for (int layer = 0; layer < layout.size(); ++layer) {
    const auto border = [&](int part) {
      const std::uint64_t before = std::uint64_t{layout[layer].parameters()} * static_cast<std::uint64_t>(part);
      return layout[layer].offset + static_cast<std::uint32_t>(before / static_cast<std::uint64_t>(nodes));
    };
    for (int part = 0; part < nodes; ++part) {
      ranges.push_back({layer, {border(part), border(part + 1)}});
      floats.push_back(ranges.back().parameters.size());
    }
  }
  const std::vector<int> owners = store::owners_of(floats, nodes);
  for (std::size_t range = 0; range < ranges.size(); ++range) ranges[range].owner = owners[range];
  return ranges;
}

}  // namespace param_sync
