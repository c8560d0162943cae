#include "param_sync/schedule/builder.hpp"

#include <algorithm>

namespace param_sync::schedule {
namespace {

/// Ranks in groups. Each group sums the data in slices() slices. Members of a smaller group may own several slices.
struct Groups {
  int nodes;
  int group_size;

  int count() const { return (nodes + group_size - 1) / group_size; }
  int slices() const { return std::min(nodes, group_size); }
  int first(int group) const { return group * group_size; }
  int size(int group) const { return std::min(group_size, nodes - first(group)); }
  int owner(int group, int slice) const { return first(group) + slice % size(group); }
};

/// In each group, each member receives its slices from all others (reduce), or sends them to all others (copy).
void within_groups(Builder& builder, const Groups& groups, Range all, Take take) {
  for (int distance = 1; distance < groups.group_size; ++distance) {
    for (int group = 0; group < groups.count(); ++group) {
      for (int slice = 0; slice < groups.slices() && distance < groups.size(group); ++slice) {
        const int owner = groups.owner(group, slice);
        const int other = groups.first(group) + (owner - groups.first(group) + distance) % groups.size(group);
        const Range range = part_of(all, slice, groups.slices());
        if (take == Take::reduce) {
          builder.transfer(other, owner, range, take);
        } else {
          builder.transfer(owner, other, range, take);
        }
      }
    }
  }
}

/// Adds one step of a ring over the groups, for each slice.
void between_groups(Builder& builder, const Groups& groups, Range all, int shift, Take take) {
  const int count = groups.count();
  for (int slice = 0; slice < groups.slices(); ++slice) {
    for (int group = 0; group < count; ++group) {
      const Range part = part_of(part_of(all, slice, groups.slices()), (group + shift + 2 * count) % count, count);
      builder.transfer(groups.owner(group, slice), groups.owner((group + 1) % count, slice), part, take);
    }
  }
}

}  // namespace

/// Neighboring ranks form groups of `group_size`; the last group may be smaller. Ranks reduce-scatter within their
/// group, groups all-reduce each part over a ring, and ranks all-gather within their group.
Schedule hierarchical(int nodes, int chunks, int group_size) {
  Builder builder("hierarchical", nodes, chunks);
  const Groups groups{nodes, group_size};
  const Range all{0, chunks};
  within_groups(builder, groups, all, Take::reduce);
  for (int step = 0; step < groups.count() - 1; ++step) between_groups(builder, groups, all, -step, Take::reduce);
  for (int step = 0; step < groups.count() - 1; ++step) between_groups(builder, groups, all, 1 - step, Take::copy);
  within_groups(builder, groups, all, Take::copy);
  return std::move(builder).finish();
}

}  // namespace param_sync::schedule
