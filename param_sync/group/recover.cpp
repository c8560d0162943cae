#include "param_sync/store.hpp"

#include "param_sync/store/held_versions.hpp"
#include "param_sync/store/replicas.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <string>

namespace param_sync {
namespace {

using store::HeldVersions;

HeldVersions versions_of(std::size_t range, std::span<const HeldRange> held) {
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
  return HeldVersions::of(newest, has_before);
}

/// What each rank has of each range: by rank, then by range. An operation of the group that waits.
std::vector<HeldVersions> gather(Group& group, gpusock::Context& context, std::size_t ranges,
                                 std::span<const HeldRange> held, std::uint64_t timeout_ns) {
  const std::size_t all = ranges * static_cast<std::size_t>(group.nodes());
  gpusock::Mapped<std::int32_t> numbers(context, all);
  std::fill_n(numbers.data(), all, 0);
  const std::size_t own = ranges * static_cast<std::size_t>(group.rank());
  for (std::size_t range = 0; range < ranges; ++range) {
    numbers[own + range] = static_cast<std::int32_t>(versions_of(range, held).number);
  }
  group.wait(group.all_gather({numbers.data(), all}, timeout_ns));
  std::vector<HeldVersions> of_ranks;
  of_ranks.reserve(all);
  for (std::size_t i = 0; i < all; ++i) of_ranks.push_back({static_cast<std::uint32_t>(numbers[i])});
  return of_ranks;
}

}  // namespace

RecoveredRanges recover(Group& group, gpusock::Context& context, std::span<const std::size_t> range_floats,
                        std::span<const HeldRange> held, std::uint64_t timeout_ns) {
  const std::size_t ranges = range_floats.size();
  const std::vector<HeldVersions> of_ranks = gather(group, context, ranges, held, timeout_ns);
  RecoveredRanges result;
  result.clock = store::newest_of_all(of_ranks, ranges);
  // Of the ranks that have a range the first one gives its bits, and the others zeros: the sum is exact.
  std::vector<std::int32_t> bits;
  const auto add = [&](std::span<const float> some, std::size_t count) {
    for (const float value : some) bits.push_back(std::bit_cast<std::int32_t>(value));
    bits.resize(bits.size() + count - some.size());
  };
  for (std::size_t range = 0; range < ranges; ++range) {
    const std::size_t first = store::first_with(of_ranks, ranges, range, result.clock);
    if (first == static_cast<std::size_t>(group.nodes()) && range_floats[range] != 0) {
      throw gpusock::Error(ENODATA, "the ranks that are left do not have range " + std::to_string(range) +
                                        " of the store: more ranks were lost than have replicas of it");
    }
    const bool is_own = first == static_cast<std::size_t>(group.rank());
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
