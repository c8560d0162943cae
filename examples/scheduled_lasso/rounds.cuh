#pragma once
/// @file The rounds of the scheduler and of the ranks: STRADS's primitives "push" (each rank computes its part of
/// x_j . residual) and "pull" (the sums of the parts change the coordinates, and these the residuals).

#include "examples/scheduled_lasso/planes.cuh"
#include "examples/scheduled_lasso/schedule.cuh"

namespace lasso {

inline constexpr unsigned kThreads = 32;    // of a block
inline constexpr double kGrowthMax = 1000;  // of the objective: then nothing is to be expected any more

/// What the scheduler found before a round.
struct Round {
  double objective;
  std::uint64_t updates;  ///< of coordinates, so far
};

/// What the scheduler's kernel has. Pointers without a comment point to device memory.
struct Leader {
  gpusock::Net net;
  Scheduler scheduler;
  Planes* planes = nullptr;
  std::uint32_t ranks = 0;
  std::uint64_t timeout_ns = 0;  ///< of a round
  float l1 = 0;
  double target = 0;               ///< an objective that is low enough
  std::uint64_t updates_max = 0;   ///< as many, or a few more: the last set is complete
  std::uint64_t redraw_after = 0;  ///< after so many updates, redraw_seed draws the sets; 0: never
  std::uint64_t redraw_seed = 0;
  float* weights = nullptr;
  Round* rounds = nullptr;                ///< updates_max + 1
  std::uint32_t* coordinates = nullptr;   ///< updates_max + kSetMax: all sets, one after the other
  std::uint64_t* rounds_count = nullptr;  ///< mapped
  Failure* failure = nullptr;             ///< mapped
};

/// Sends a message to the given plane of all ranks. Returns 0, or why a rank was lost, whose number is then in `rank`.
template <class Group>
__device__ int tell_ranks(const Group& group, const Leader& own, gpusock::Socket Planes::*plane, const void* data,
                          std::size_t bytes, gpusock::Deadline until, std::uint32_t& rank) {
  for (rank = 0; rank < own.ranks; ++rank) {
    const int error = send_all(group, own.net, own.planes[rank].*plane, data, bytes, until);
    if (error != 0) return error;
  }
  return 0;
}

/// Adds the ranks' sums, in the order of ranks.
template <class Group>
__device__ int add_sums(const Group& group, const Leader& own, double* sums, double* part, std::uint32_t count,
                        gpusock::Deadline until, std::uint32_t& rank) {
  for (std::uint32_t i = group.thread_rank(); i < count; i += group.num_threads()) sums[i] = 0;
  for (rank = 0; rank < own.ranks; ++rank) {
    const int error = receive_all(group, own.net, own.planes[rank].data, part, count * sizeof *part, until);
    if (error != 0) return error;
    for (std::uint32_t i = group.thread_rank(); i < count; i += group.num_threads()) sums[i] += part[i];
    group.sync();
  }
  return 0;
}

/// One thread changes the coordinates of a set. Returns by how much the sum of their absolute values has grown.
__device__ inline double pull(const Leader& own, const Set& set, const double* sums, float* changes) {
  double growth = 0;
  for (std::int32_t i = 0; i < set.count; ++i) {
    float& weight = own.weights[set.of[i]];
    const float best = weight + static_cast<float>(sums[i]);  // without the norm: columns have length 1
    const float next = best > own.l1 ? best - own.l1 : best < -own.l1 ? best + own.l1 : 0;
    changes[i] = next - weight;
    growth += fabsf(next) - fabsf(weight);
    weight = next;
    note_change(own.scheduler, set.of[i], changes[i]);
  }
  return growth;
}

/// The scheduler: one block.
__global__ void lead(Leader own) {
  __shared__ Set set;
  __shared__ double sums[kSetMax + 1], part[kSetMax + 1];  // of each coordinate, and the residuals' squares
  __shared__ float changes[kSetMax];
  __shared__ bool is_last;
  const auto block = gpusock::this_block();
  const bool is_leader = block.thread_rank() == 0;
  double norm = 0;
  std::uint64_t updates = 0;
  std::uint32_t rank = 0;
  int error = 0;
  bool is_redrawn = own.redraw_after == 0;
  for (std::uint64_t round = 0;; ++round) {
    if (is_leader && !is_redrawn && updates >= own.redraw_after) {
      *own.scheduler.state = own.redraw_seed;
      is_redrawn = true;
    }
    schedule(block, own.scheduler, set);
    const auto until = gpusock::Deadline::after_ns(own.timeout_ns);
    const auto count = static_cast<std::uint32_t>(set.count);
    error = tell_ranks(block, own, &Planes::control, &set, sizeof set, until, rank);
    if (error == 0) error = add_sums(block, own, sums, part, count + 1, until, rank);
    if (error != 0) break;
    if (is_leader) {
      const double objective = sums[count] / 2 + own.l1 * norm;
      own.rounds[round] = {objective, updates};
      *own.rounds_count = round + 1;
      is_last = updates >= own.updates_max || objective <= own.target ||
                !(objective <= kGrowthMax * own.rounds[0].objective);
      for (std::uint32_t i = 0; i < count; ++i) {
        changes[i] = 0;
        if (!is_last) own.coordinates[updates + i] = set.of[i];
      }
      if (!is_last) norm += pull(own, set, sums, changes);
    }
    block.sync();
    error = tell_ranks(block, own, &Planes::data, changes, count * sizeof *changes, until, rank);
    updates += count;
    if (error != 0 || is_last) break;
  }
  block.sync();
  if (is_leader) {
    *own.failure = {error, static_cast<std::int32_t>(rank)};
    set.count = error == 0 ? Set::kEnd : Set::kEnd - 1 - static_cast<std::int32_t>(rank);
  }
  block.sync();
  const auto until = gpusock::Deadline::after_ns(own.timeout_ns);
  for (std::uint32_t i = 0; i < own.ranks; ++i) {
    if (error == 0 || i != rank) send_all(block, own.net, own.planes[i].control, &set, sizeof set, until);
    own.net.close(block, own.planes[i].data);  // a rank that waits for changes then reads the control plane
  }
}

/// What a rank's kernel has. Pointers without a comment point to device memory.
struct Follower {
  gpusock::Net net;
  Planes planes;
  std::uint64_t timeout_ns = 0;  ///< longer than the scheduler's, which says which rank was lost
  std::uint32_t samples = 0, features = 0;
  const float* columns = nullptr;  ///< of this rank's samples
  float* residuals = nullptr;      ///< of this rank's samples
  Failure* failure = nullptr;      ///< mapped
};

/// This rank's part of the sums. `parts`: memory of the block, a number for each thread and sum.
template <class Group>
__device__ void push(const Group& group, const Follower& own, const Set& set, double (*parts)[kThreads], double* sums) {
  const unsigned me = group.thread_rank(), threads = group.num_threads();
  const auto count = static_cast<std::uint32_t>(set.count);
  for (std::uint32_t sum = 0; sum <= count; ++sum) {
    const float* const column = sum < count ? own.columns + std::size_t{set.of[sum]} * own.samples : own.residuals;
    double part = 0;
    for (std::uint32_t i = me; i < own.samples; i += threads) part += double{column[i]} * own.residuals[i];
    parts[sum][me] = part;
  }
  group.sync();
  for (std::uint32_t sum = me; sum <= count; sum += threads) {
    sums[sum] = 0;
    for (unsigned thread = 0; thread < threads; ++thread) sums[sum] += parts[sum][thread];
  }
  group.sync();
}

/// Changes the residuals as the coordinates have changed.
template <class Group>
__device__ void change_residuals(const Group& group, const Follower& own, const Set& set, const float* changes) {
  for (std::uint32_t i = group.thread_rank(); i < own.samples; i += group.num_threads()) {
    float residual = own.residuals[i];
    for (std::int32_t k = 0; k < set.count; ++k) {
      residual -= changes[k] * own.columns[std::size_t{set.of[k]} * own.samples + i];
    }
    own.residuals[i] = residual;
  }
  group.sync();
}

__device__ inline bool is_valid(const Set& set, std::uint32_t features) {
  bool valid = set.count <= static_cast<std::int32_t>(kSetMax);
  for (std::int32_t i = 0; valid && i < set.count; ++i) valid = set.of[i] < features;
  return valid;
}

/// A rank: one block.
__global__ void follow(Follower own) {
  __shared__ Set set;
  __shared__ double parts[kSetMax + 1][kThreads], sums[kSetMax + 1];
  __shared__ float changes[kSetMax];
  const auto block = gpusock::this_block();
  int error = 0;
  auto until = gpusock::Deadline::after_ns(own.timeout_ns);
  for (;;) {
    const int none = receive_all(block, own.net, own.planes.control, &set, sizeof set, until);
    if (none == 0 && set.count < 0) error = 0;  // after an error, the control plane says why the data plane has ended
    if (none != 0 && error == 0) error = none;
    if (none == 0 && !is_valid(set, own.features)) error = -EPROTO;
    if (none != 0 || error != 0 || set.count < 0) break;
    until = gpusock::Deadline::after_ns(own.timeout_ns);
    const auto count = static_cast<std::uint32_t>(set.count);
    push(block, own, set, parts, sums);
    error = send_all(block, own.net, own.planes.data, sums, (count + 1) * sizeof *sums, until);
    if (error == 0) error = receive_all(block, own.net, own.planes.data, changes, count * sizeof *changes, until);
    if (error == 0) change_residuals(block, own, set, changes);
  }
  if (block.thread_rank() != 0) return;
  *own.failure = {error, Failure::kScheduler};
  if (error == 0 && set.count < Set::kEnd) *own.failure = {-ECONNRESET, Set::kEnd - 1 - set.count};
}

}  // namespace lasso
