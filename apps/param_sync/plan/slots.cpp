#include "plan/slots.hpp"

#include "layout/random.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace param_sync {

std::uint64_t Slots::step_of(int rank, std::uint64_t round) const {
  // A generator of its own for each round: so the order of a round does not depend on which ones were asked for.
  Random random(seed * 0x9e3779b97f4a7c15 + round * 0xd1342543de82ef95 + 2);
  std::vector<int> order(static_cast<std::size_t>(nodes));
  std::iota(order.begin(), order.end(), 0);
  shuffle(order, random);
  const auto before = std::find(order.begin(), order.end(), rank) - order.begin();
  return static_cast<std::uint64_t>(before) / count;
}

}  // namespace param_sync
