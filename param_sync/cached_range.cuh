#pragma once
/// @file A parameter cache: a range stays on the device of a rank that has pulled it, and is read there as long as the
/// store's clock allows (SSPTable: Ho et al., NIPS 2013; Bösen: Wei et al., SoCC 2015; GeePS: Cui et al., EuroSys
/// 2016). For sources that are compiled for the device.

#include "param_sync/store.cuh"

#include <cerrno>
#include <cstdint>

namespace param_sync {

/// Which version of the weights a CachedRange has. All of it is zero before the first call.
struct CachedVersion {
  std::uint64_t pulls = 0;      ///< how often pull_cached() has asked the owner; 0: there are no weights yet
  std::uint64_t pulled_at = 0;  ///< how many pushes of the range this rank had made at the last of these
  std::uint64_t pushes = 0;     ///< how many pushes of this rank CachedRange::velocities contain
  std::uint64_t is_recent = 0;  ///< not 0: the last pull_cached() did not ask
  std::uint64_t seen[store::Head::kRanksMax] = {};  ///< by rank: how many of its pushes the weights contain at least
};

/// Memory of pull_cached() and push_cached() for one range. It is the program's, in device memory. Programs read the
/// weights where they are.
struct CachedRange {
  float* weights = nullptr;          ///< floats of the range
  CachedVersion* version = nullptr;  ///< zero before the first call
  /// With a momentum and a clock that is not Bsp: floats of the range, zero before the first call. They are those that
  /// the owner has for this rank, but for the rounding of StoreOptions::push_format. Otherwise they are not used.
  float* velocities = nullptr;
  /// A version is read until this rank has made so many pushes since it was pulled. 0: as long as the clock allows.
  /// With Async, which allows any version, it is not 0.
  std::uint64_t pushes_max = 0;
};

namespace store {

/// True if the clock allows that a rank with so many pushes reads what is cached. Once the store has failed, nothing is
/// allowed: so later reads fail as all calls do. One thread.
__device__ inline bool may_read(const Worker& worker, const CachedRange& cache, std::uint64_t clock) {
  const CachedVersion& version = *cache.version;
  if (version.pulls == 0 || has_failed(*worker.failed)) return false;
  if (cache.pushes_max != 0 && clock - version.pulled_at >= cache.pushes_max) return false;
  for (int rank = 0; rank < worker.ranks; ++rank) {
    if (!worker.clock.suffices(version.seen[rank], rank == worker.rank, clock)) return false;
  }
  return true;
}

/// True if this rank can compute what an owner, who applies pushes by themselves, makes of its next push. It knows
/// neither how late a push is, nor velocities that miss a push.
__device__ inline bool can_apply(const Worker& worker, const CachedRange& cache, std::uint64_t clock) {
  if (worker.correction.divides_by_lag || worker.correction.compensation != 0) return false;
  return worker.update.momentum == 0 || (cache.velocities != nullptr && cache.version->pushes == clock);
}

/// Applies a push of this rank, as the owner does. `to_weights`: to the weights, too.
template <class Group>
__device__ inline void apply_own(const Group& group, const Worker& worker, std::uint64_t floats, const float* gradients,
                                 const CachedRange& cache, bool to_weights) {
  const SinglePush push(worker.update, {}, worker.ranks, 0);
  for (std::uint64_t i = group.thread_rank(); i < floats; i += group.size()) {
    float no_velocity = 0, no_weight = 0;
    float& velocity = worker.update.momentum != 0 ? cache.velocities[i] : no_velocity;
    push.apply(gradients[i], nullptr, nullptr, {&velocity, 0}, to_weights ? cache.weights[i] : no_weight);
  }
}

}  // namespace store

/// Reads a range: returns 0 when `cache.weights` are weights that pull() might return. If those that are there already
/// are recent enough for the store's clock, no message is sent. Otherwise it pulls them. So with Ssp{S} a rank whose
/// peers push at the same pace pulls once in S + 1 reads; one that is S pushes ahead of a peer pulls in each of them.
/// With Bsp it pulls in the first read after a push. A rank that pushes nothing never needs other weights than the
/// first: to see others' pushes, it calls pull().
///
/// A cached read has all pushes of this rank, and is in the store's history.
///
/// Errors: those of pull(), and -EINVAL: the clock is Async and `cache.pushes_max` is 0. That a rank is lost shows when
/// an owner is asked.
template <class Group>
__device__ inline int pull_cached(const Group& group, const StoreHandle& handle, unsigned range,
                                  const CachedRange& cache,
                                  gpusock::Deadline deadline = gpusock::Deadline::by_default()) {
  const store::Worker& worker = *handle.worker;
  if (range >= worker.range_count || (cache.pushes_max == 0 && !worker.clock.is_bounded())) return -EINVAL;
  CachedVersion& version = *cache.version;
  const std::uint64_t clock = worker.clock_of(range);
  const bool leads = group.thread_rank() == 0;
  if (leads) {
    version.is_recent = store::may_read(worker, cache, clock) ? 1 : 0;
    if (version.is_recent != 0) store::note(worker, store::Event::kCached | range, clock, version.seen);
  }
  group.sync();
  const bool is_recent = version.is_recent != 0;
  group.sync();  // all have read it before it changes
  if (is_recent) return 0;
  const int error = pull(group, handle, range, cache.weights, version.seen, deadline);
  if (error != 0) return error;
  if (leads) {
    ++version.pulls;
    version.pulled_at = clock;
  }
  group.sync();
  return 0;
}

/// Pushes gradients as push() does, and applies them to the cached weights as their owner will, so that the next
/// pull_cached() need not ask for them. After a push by another call it asks. Floats are those before they are rounded
/// to StoreOptions::push_format. With Bsp cached weights are not used after a push, and nothing is applied.
///
/// Errors: those of push(), and -EINVAL, with which nothing is pushed: the clock is not Bsp, and the store has a
/// Correction, or it has a momentum and `cache.velocities` are null or miss pushes that other calls have made.
template <class Group>
__device__ inline int push_cached(const Group& group, const StoreHandle& handle, unsigned range, const float* gradients,
                                  const CachedRange& cache,
                                  gpusock::Deadline deadline = gpusock::Deadline::by_default()) {
  const store::Worker& worker = *handle.worker;
  if (range >= worker.range_count) return -EINVAL;
  if (worker.clock.is_in_rank_order()) return push(group, handle, range, gradients, deadline);
  CachedVersion& version = *cache.version;
  const std::uint64_t clock = worker.clock_of(range);
  if (!store::can_apply(worker, cache, clock)) return -EINVAL;
  const bool has_all_own = version.seen[worker.rank] == clock;
  const int error = push(group, handle, range, gradients, deadline);
  if (error != 0) return error;
  store::apply_own(group, worker, worker.ranges[range].floats, gradients, cache, has_all_own);
  if (group.thread_rank() == 0) {
    version.pushes = clock + 1;
    if (has_all_own) version.seen[worker.rank] = clock + 1;
  }
  group.sync();
  return 0;
}

}  // namespace param_sync
