#pragma once
/// @file Reads of weights that ranks pass on to each other (StoreOptions::tree_depth). For sources that are compiled
/// for the device. See store.cuh for the rules of calls and deadlines.
///
/// An owner answers a few ranks itself, and these pass the weights on: so an owner's weights leave it `fanout` times,
/// however many ranks there are. In exchange a rank reads weights that are as many pushes old as its place in the
/// owner's tree is deep, at most StoreOptions::tree_depth.

#include "param_sync/store.cuh"

namespace param_sync {

namespace store {

/// Records that a rank has not passed weights on, or has not taken them.
template <class Group>
__device__ inline int lose_in_tree(const Group& group, const Worker& worker, FailureKind kind, int rank, unsigned range,
                                   std::int64_t result) {
  const int error = result < 0 ? static_cast<int>(-result) : ECONNRESET;  // the end of the stream
  return failed_with(group, worker, {kind, rank, error, static_cast<std::int32_t>(range)});
}

/// Passes a range on to the ranks below this one.
template <class Group>
__device__ inline int pass_on(const Group& group, const Worker& worker, unsigned range, const float* weights,
                              gpusock::Deadline until) {
  const RangeInfo& info = worker.ranges[range];
  for (int rank = 0; rank < worker.ranks; ++rank) {
    const gpusock::Socket child = worker.children[info.owner * worker.ranks + rank];
    if (child < 0) continue;
    const std::int64_t sent = worker.net.send(group, child, weights, info.floats * sizeof(float), gpusock::kWaitAll,
                                              until);
    if (sent < 0) return lose_in_tree(group, worker, FailureKind::child, rank, range, sent);
  }
  return 0;
}

/// Receives a range from the rank above this one.
template <class Group>
__device__ inline int receive_passed_on(const Group& group, const Worker& worker, unsigned range, float* weights,
                                        gpusock::Deadline until) {
  const RangeInfo& info = worker.ranges[range];
  const auto bytes = static_cast<std::int64_t>(info.floats * sizeof(float));
  const std::int64_t got = worker.net.recv(group, worker.parents[info.owner], weights, static_cast<std::size_t>(bytes),
                                           gpusock::kWaitAll, until);
  if (got == bytes) return 0;
  const int parent = worker.tree.parent_of(info.owner, worker.rank);
  return lose_in_tree(group, worker, FailureKind::parent, parent, range, min(got, std::int64_t{0}));
}

/// Counts a read of weights that contain so many pushes of each rank, and came from the rank above this one.
template <class Group>
__device__ inline void note_passed_on(const Group& group, const Worker& worker, unsigned range, std::uint64_t version,
                                      std::uint64_t* seen) {
  if (group.thread_rank() == 0) {
    Head& head = worker.heads[worker.connection_of(range)];
    for (int rank = 0; rank < worker.ranks; ++rank) head.seen[rank] = version;
    if (version != 0) {
      add_bytes(worker.traffic[range].pulled_bytes, worker.ranges[range].floats * sizeof(float));
    }
    note(worker, range, worker.clock_of(range), head.seen);
    for (int rank = 0; seen != nullptr && rank < worker.ranks; ++rank) seen[rank] = version;
  }
  group.sync();
}

}  // namespace store

/// Reads a range by the tree of its owner. All ranks call it for a range once after each of their pushes of it, and for
/// ranges of an owner in the same order: a rank that does not call keeps those below it waiting. Calls for ranges of
/// one owner are made one after the other.
///
/// After push number c of this rank, a rank at level l of the tree reads the weights that contain c + 1 - l pushes of
/// each rank; the owner itself (level 0) reads as its children do (level 1), which have the newest weights. If the
/// weights contain no push yet, `weights` stay as they are: give memory with the initial weights. A rank at level 2 or
/// deeper does not see its own newest pushes.
///
/// `before`: the weights that the call before has read, or the initial ones. This call passes them on. `seen`: see
/// pull().
///
/// Errors: those of pull(), where a rank of the tree may be lost or late instead of the owner, and -EINVAL: the store
/// has no trees.
template <class Group>
__device__ inline int pull_by_tree(const Group& group, const StoreHandle& handle, unsigned range, const float* before,
                                   float* weights, std::uint64_t* seen = nullptr,
                                   gpusock::Deadline deadline = gpusock::Deadline::by_default()) {
  const store::Worker& worker = *handle.worker;
  if (range >= worker.range_count || worker.tree.fanout == 0) return -EINVAL;
  const gpusock::Deadline until = executor::begun(deadline);
  const store::RangeInfo& info = worker.ranges[range];
  const auto level = static_cast<std::uint64_t>(worker.tree.level_of(info.owner, worker.rank));
  const std::uint64_t clock = worker.clock_of(range);
  // Those below read now what this rank has read before: so no level waits for the one above it.
  if (level != 0 && clock > level && info.floats != 0) {
    if (const int error = store::pass_on(group, worker, range, before, until); error != 0) return error;
  }
  if (level <= 1) return pull(group, handle, range, weights, seen, until);
  const std::uint64_t version = clock < level ? 0 : clock + 1 - level;
  if (version != 0 && info.floats != 0) {
    if (const int error = store::receive_passed_on(group, worker, range, weights, until); error != 0) return error;
  }
  store::note_passed_on(group, worker, range, version, seen);
  return 0;
}

}  // namespace param_sync
