#pragma once
/// @file A pull of several ranges at one version, for workers of a store whose clock drops late pushes: Backup and
/// Coded.

#include "param_sync/store.cuh"

#include "gpusock/device.cuh"

#include <cerrno>
#include <cstdint>

namespace param_sync {

/// Pulls ranges 0 to `ranges` - 1 until all of them have the same version, which clock_of() then returns. to(range)
/// returns where the weights of a range go, for the same range always the same.
///
/// Gradients of weights of several versions are no gradients of the model: with Coded the ranks of a group would then
/// push different ones. This call leaves out the steps that a rank has missed. If a range has a newer version than
/// another one, enough ranks have computed all steps before that version, and push them for all ranges: so this rank's
/// are not needed, and the wait ends. Each rank must therefore push all ranges in each step that it computes.
///
/// `after`: memory for a number of each rank, which all threads of the group share.
///
/// Errors: those of pull(); -EINVAL also if there are fewer ranges.
template <class Group, class To>
__device__ inline int pull_together(const Group& group, const StoreHandle& handle, unsigned ranges, To to,
                                    std::uint64_t* after,
                                    gpusock::Deadline deadline = gpusock::Deadline::by_default()) {
  const store::Worker& worker = *handle.worker;
  if (ranges > worker.range_count) return -EINVAL;
  const gpusock::Deadline until = executor::begun(deadline);
  std::uint64_t newest = 0;
  for (unsigned range = 0; range < ranges; ++range) {
    if (const int error = pull(group, handle, range, to(range), until); error != 0) return error;
    newest = max(newest, clock_of(handle, range));
  }
  for (unsigned equal = 0, range = 0; equal < ranges; range = (range + 1) % ranges) {
    if (clock_of(handle, range) == newest) {
      ++equal;
      continue;
    }
    for (int rank = static_cast<int>(group.thread_rank()); rank < worker.ranks;
         rank += static_cast<int>(group.size())) {
      after[rank] = newest;
    }
    group.sync();
    if (const int error = pull_after(group, handle, range, after, to(range), nullptr, until); error != 0) return error;
    equal = clock_of(handle, range) == newest ? equal + 1 : 1;
    newest = clock_of(handle, range);
  }
  return 0;
}

}  // namespace param_sync
