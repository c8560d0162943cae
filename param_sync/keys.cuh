#pragma once
/// @file Pushes and pulls of rows by 64-bit keys, such as the features of sparse samples (StoreOptions::keys_max). For
/// sources that are compiled for the device.
///
/// Each rank owns the keys that consistent hashing gives it (Karger et al., "Consistent hashing and random trees", STOC
/// 1997), as in the parameter server (Li et al., OSDI 2014). A key has a row at its owner once a rank has named it.

#include "param_sync/codec/key_cells.cuh"
#include "param_sync/store.cuh"

#include <cerrno>
#include <cstdint>

namespace param_sync {

namespace store {

/// True if the arguments of a call for keys are right. Keys ascend, so the last one is the largest.
template <class Group>
__device__ inline bool are_right(const Group& group, const Worker& worker, const std::uint64_t* keys,
                                 std::uint64_t count) {
  return worker.keys.point_count != 0 && count <= worker.keys.keys_max && group.size() <= KeyOwners::kThreadsMax &&
         (count == 0 || keys[count - 1] <= codec::KeyCells::kKeyMax);
}

/// Writes the numbers of keys by owner into KeyOwners::order. Each owner's keys ascend as they did.
template <class Group>
__device__ inline void divide_by_owner(const Group& group, const Worker& worker, const std::uint64_t* keys,
                                       std::uint64_t count) {
  const KeyOwners& of = worker.keys;
  const auto size = static_cast<unsigned>(group.size()), thread = static_cast<unsigned>(group.thread_rank());
  for (std::uint64_t i = thread; i < count; i += size) of.owners[i] = of.owner_of(keys[i]);
  group.sync();
  const std::uint64_t begin = count * thread / size, end = count * (thread + 1) / size;  // this thread's share
  std::uint64_t at = 0;
  for (unsigned owner = 0; owner < static_cast<unsigned>(worker.ranks); ++owner) {
    std::uint32_t own = 0;
    for (std::uint64_t i = begin; i < end; ++i) own += of.owners[i] == owner ? 1 : 0;
    of.counts[thread] = own;
    if (thread == 0) of.first[owner] = at;
    group.sync();
    std::uint64_t next = at;
    for (unsigned other = 0; other < size; ++other) {
      if (other < thread) next += of.counts[other];
      at += of.counts[other];
    }
    for (std::uint64_t i = begin; i < end; ++i) {
      if (of.owners[i] == owner) of.order[next++] = static_cast<std::uint32_t>(i);
    }
    group.sync();  // all have read the counts
  }
  if (thread == 0) of.first[worker.ranks] = at;
  group.sync();
}

/// Calls call(range, keys, count) for each owner's keys: `keys` are their numbers in the call. This rank's own keys
/// come last. Returns the first error.
template <class Call>
__device__ inline int for_owners(const Worker& worker, Call call) {
  const KeyOwners& of = worker.keys;
  const auto ranks = static_cast<unsigned>(worker.ranks);
  for (unsigned i = 1; i <= ranks; ++i) {
    const unsigned owner = (static_cast<unsigned>(worker.rank) + i) % ranks;
    const std::uint64_t first = of.first[owner];
    const int error = call(of.first_range + owner, of.order + first, of.first[owner + 1] - first);
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace store

/// Sends gradients of the rows of these keys to their owners. It is a push of all keys, as push_rows() is of a range:
/// other keys' gradients count as 0, and the clock of each owner's keys counts one more.
///
/// `keys`: they ascend; the largest one is 2^64 - 2. `gradients`: StoreOptions::row_floats floats for each key,
/// one row after the other. Both are memory that all threads of the group share. Keys that this rank's last call for
/// keys named at an owner are not sent to it again. One group of threads at a time calls it, of at most 1024 threads.
///
/// Errors: those of push(), and -EINVAL for a store without keys, and for more keys than StoreOptions::rows_max. If an
/// owner has no room for a key, or keys do not ascend, this call, or a later one, returns -ECONNRESET or -EPIPE.
template <class Group>
__device__ inline int push_keys(const Group& group, const StoreHandle& handle, const std::uint64_t* keys,
                                std::uint64_t count, const float* gradients,
                                gpusock::Deadline deadline = gpusock::Deadline::by_default()) {
  const store::Worker& worker = *handle.worker;
  if (!store::are_right(group, worker, keys, count)) return -EINVAL;
  const gpusock::Deadline until = executor::begun(deadline);
  store::divide_by_owner(group, worker, keys, count);
  return store::for_owners(worker, [&](unsigned range, const std::uint32_t* order, std::uint64_t of_owner) {
    return store::push_rows_from(
        group, handle, range, of_owner, [&](std::uint64_t row) { return keys[order[row]]; },
        [&](std::uint64_t row, std::uint64_t i) { return gradients[order[row] * worker.row_floats + i]; }, until);
  });
}

/// Asks the owners for the rows of these keys, and waits for them as pull() does. The rows of keys that no rank has
/// pushed are 0. Keys that are named have rows at their owners from then on.
///
/// `keys`: see push_keys(). `weights`: memory for the floats of the rows, which all threads of the group share.
///
/// Errors: those of pull() and of push_keys().
template <class Group>
__device__ inline int pull_keys(const Group& group, const StoreHandle& handle, const std::uint64_t* keys,
                                std::uint64_t count, float* weights,
                                gpusock::Deadline deadline = gpusock::Deadline::by_default()) {
  const store::Worker& worker = *handle.worker;
  if (!store::are_right(group, worker, keys, count)) return -EINVAL;
  const gpusock::Deadline until = executor::begun(deadline);
  store::divide_by_owner(group, worker, keys, count);
  // All owners are asked before the first one answers.
  int error = store::for_owners(worker, [&](unsigned range, const std::uint32_t* order, std::uint64_t of_owner) {
    std::uint64_t asked = 0;
    const auto key = [&](std::uint64_t row) { return keys[order[row]]; };
    const int failed = store::send_request_of_rows(group, worker, range, false, of_owner, key, asked, until);
    if (failed == 0 && group.thread_rank() == 0) store::add_bytes(worker.traffic[range].asked_bytes, asked);
    return failed;
  });
  if (error != 0) return error;
  return store::for_owners(worker, [&](unsigned range, const std::uint32_t* order, std::uint64_t of_owner) {
    const codec::MessageRows of{of_owner, worker.row_floats};
    if (const int failed = store::receive_head(group, worker, range, of, until); failed != 0) return failed;
    const auto value = [&](std::uint64_t row, std::uint64_t i, float number) {
      weights[order[row] * worker.row_floats + i] = number;
    };
    if (const int failed = store::receive_packed(group, worker, range, of, value, until); failed != 0) return failed;
    store::note_pull(group, worker, range, 0, of, nullptr);
    return 0;
  });
}

}  // namespace param_sync
