#include "param_sync/store.hpp"

#include "param_sync/store/replicas.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <limits>
#include <string>

namespace param_sync {
namespace {

/// Which versions of a range a rank has, as one number, so that ranks can gather them: 0: none; else the newest one,
/// and whether it has the one before, too.
struct Versions {
  std::uint32_t number = 0;

  bool none() const { return number == 0; }
  std::uint64_t newest() const { return number / 2 - 1; }
  bool has(std::uint64_t clock) const {
    return !none() && (clock == newest() || (clock + 1 == newest() && number % 2 == 1));
  }
};

Versions versions_of(std::size_t range, std::span<const HeldRange> held) {
  std::uint64_t newest = 0;
  bool some = false;
  for (const HeldRange& of : held) {
    if (of.range != range) continue;
    newest = some ? std::max(newest, of.clock) : of.clock;
    some = true;
  }
  if (!some) return {};
  const bool has_before = std::ranges::any_of(
      held, [&](const HeldRange& of) { return of.range == range && of.clock + 1 == newest; });
  return {static_cast<std::uint32_t>(2 * (newest + 1) + (has_before ? 1 : 0))};
}

/// What each rank has of each range: by rank, then by range. An operation of the group that waits.
std::vector<Versions> gather(Group& group, gpusock::Context& context, std::size_t ranges,
                             std::span<const HeldRange> held, std::uint64_t timeout_ns) {
  const std::size_t all = ranges * static_cast<std::size_t>(group.nodes());
  gpusock::Mapped<std::int32_t> numbers(context, all);
  std::fill_n(numbers.data(), all, 0);
  const std::size_t own = ranges * static_cast<std::size_t>(group.rank());
  for (std::size_t range = 0; range < ranges; ++range) {
    numbers[own + range] = static_cast<std::int32_t>(versions_of(range, held).number);
  }
  group.wait(group.all_gather({numbers.data(), all}, timeout_ns));
  std::vector<Versions> of_ranks;
  of_ranks.reserve(all);
  for (std::size_t i = 0; i < all; ++i) of_ranks.push_back({static_cast<std::uint32_t>(numbers[i])});
  return of_ranks;
}

/// The newest version that the ranks together have of all ranges of which they have any.
std::uint64_t newest_of_all(std::span<const Versions> of_ranks, std::size_t ranges) {
  std::uint64_t clock = std::numeric_limits<std::uint64_t>::max();
  for (std::size_t range = 0; range < ranges; ++range) {
    std::uint64_t newest = 0;
    bool some = false;
    for (std::size_t i = range; i < of_ranks.size(); i += ranges) {
      some = some || !of_ranks[i].none();
      if (!of_ranks[i].none()) newest = std::max(newest, of_ranks[i].newest());
    }
    if (some) clock = std::min(clock, newest);
  }
  return clock;
}

}  // namespace

RecoveredRanges recover(Group& group, gpusock::Context& context, std::span<const std::size_t> range_floats,
                        std::span<const HeldRange> held, std::uint64_t timeout_ns) {
  const std::size_t ranges = range_floats.size();
  const std::vector<Versions> of_ranks = gather(group, context, ranges, held, timeout_ns);
  RecoveredRanges result;
  result.clock = newest_of_all(of_ranks, ranges);
  // Of the ranks that have a range the first one gives its bits, and the others zeros: the sum is exact.
  std::vector<std::int32_t> bits;
  const auto add = [&](std::span<const float> some, std::size_t count) {
    for (const float value : some) bits.push_back(std::bit_cast<std::int32_t>(value));
    bits.resize(bits.size() + count - some.size());
  };
  for (std::size_t range = 0; range < ranges; ++range) {
    std::size_t first = range;
    while (first < of_ranks.size() && !of_ranks[first].has(result.clock)) first += ranges;
    if (first >= of_ranks.size() && range_floats[range] != 0) {
      throw gpusock::Error(ENODATA, "the ranks that are left do not have range " + std::to_string(range) +
                                        " of the store: more ranks were lost than have replicas of it");
    }
    const bool is_own = first / ranges == static_cast<std::size_t>(group.rank());
    const auto of = std::ranges::find_if(
        held, [&](const HeldRange& some) { return is_own && some.range == range && some.clock == result.clock; });
    const bool gives = of != held.end();
    add(gives ? std::span<const float>(of->weights) : std::span<const float>(), range_floats[range]);
    add(gives ? std::span<const float>(of->states) : std::span<const float>(),
        store::replica_floats(range_floats[range]) - range_floats[range]);
  }
  gpusock::DeviceBuffer<std::int32_t> sums(context, bits.size());
  sums.copy_in(bits);
  group.wait(group.all_reduce({sums.data(), bits.size()}, ReduceOp::sum, timeout_ns));
  sums.copy_out(bits);
  auto next = bits.begin();
  const auto take = [&](std::size_t count) {
    std::vector<float> some(count);
    for (float& value : some) value = std::bit_cast<float>(*next++);
    return some;
  };
  for (const std::size_t floats : range_floats) {
    result.weights.push_back(take(floats));
    result.states.push_back(take(store::replica_floats(floats) - floats));
  }
  return result;
}

}  // namespace param_sync
