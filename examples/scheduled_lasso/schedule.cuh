#pragma once
/// @file STRADS's primitive "schedule": which coordinates are changed at the same time. (Kim et al., EuroSys 2016; Lee
/// et al., NIPS 2014.)

#include <gpusock/device.cuh>

namespace lasso {

inline constexpr unsigned kSetMax = 64;                  // coordinates of a set
inline constexpr unsigned kCandidatesMax = 2 * kSetMax;  // which are drawn for a set
inline constexpr float kNeverChanged = 1e6f;             // the priority of a coordinate before its first turn

enum class Policy {
  strads,   ///< candidates by priority; only those that do not depend on each other are in a set
  uniform,  ///< as strads, but all candidates have the same priority
  random,   ///< any coordinates
  serial,   ///< one coordinate after the other
};

/// Coordinates that are changed at the same time. The control plane carries it.
struct Set {
  static constexpr std::int32_t kEnd = -1;  ///< as the count: there is no other set; -2 - R: rank R was lost
  std::int32_t count;
  std::uint32_t of[kSetMax];
};

/// What the scheduler works with. Pointers point to device memory.
struct Scheduler {
  Policy policy = Policy::strads;
  unsigned parallel = 1;     ///< the most coordinates of a set
  float dependence_max = 0;  ///< coordinates j and k of a set have a smaller |x_j . x_k|
  float priority_min = 0;    ///< a coordinate's priority is this plus the size of its last change
  std::uint32_t samples = 0, features = 0;
  const float* columns = nullptr;          ///< x_j, one after the other
  float* priorities = nullptr;             ///< of each coordinate; negative: it is a candidate already
  std::uint32_t* candidates = nullptr;     ///< kCandidatesMax
  unsigned char* are_dependent = nullptr;  ///< of each pair of candidates, kCandidatesMax^2
  std::uint64_t* state = nullptr;          ///< of random numbers, or the next coordinate

  GPUSOCK_FN bool tests_dependence() const { return policy == Policy::strads || policy == Policy::uniform; }
};

/// x_j . x_k. Eight sums: compilers keep the order of additions, and each one waits for the one before it.
GPUSOCK_FN inline float product_of(const float* one, const float* other, std::uint32_t count) {
  float sums[8] = {};
  std::uint32_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (std::uint32_t k = 0; k < 8; ++k) sums[k] += one[i + k] * other[i + k];
  }
  for (; i < count; ++i) sums[0] += one[i] * other[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/// The next random number in [0, 1): SplitMix64 (Steele et al., 2014).
GPUSOCK_FN inline double next_random(std::uint64_t& state) {
  std::uint64_t bits = state += 0x9e37'79b9'7f4a'7c15;
  bits = (bits ^ bits >> 30) * 0xbf58'476d'1ce4'e5b9;
  bits = (bits ^ bits >> 27) * 0x94d0'49bb'1331'11eb;
  return static_cast<double>((bits ^ bits >> 31) >> 11) / 9007199254740992.0;  // 2^53
}

/// Draws different coordinates, each with a probability in proportion to its priority.
GPUSOCK_FN inline void draw(const Scheduler& own, unsigned count) {
  double all = 0;
  for (std::uint32_t i = 0; i < own.features; ++i) all += own.priorities[i];
  for (unsigned drawn = 0; drawn < count; ++drawn) {
    double at = all * next_random(*own.state);
    std::uint32_t found = 0;
    for (std::uint32_t i = 0; i < own.features && at >= 0; ++i) {
      if (own.priorities[i] < 0) continue;
      at -= own.priorities[i];
      found = i;
    }
    all -= own.priorities[found];
    own.priorities[found] = -own.priorities[found];
    own.candidates[drawn] = found;
  }
  for (unsigned i = 0; i < count; ++i) own.priorities[own.candidates[i]] *= -1;
}

/// Chooses the next set. It is in memory of the whole group.
template <class Group>
GPUSOCK_FN void schedule(const Group& group, const Scheduler& own, Set& set) {
  const bool is_leader = group.thread_rank() == 0;
  if (own.policy == Policy::serial) {
    if (is_leader) {
      set.count = 1;
      set.of[0] = static_cast<std::uint32_t>((*own.state)++ % own.features);
    }
    return group.sync();
  }
  const unsigned drawn = own.tests_dependence() ? 2 * own.parallel : own.parallel;
  const unsigned count = drawn < own.features ? drawn : own.features;
  if (is_leader) draw(own, count);
  group.sync();
  for (unsigned pair = group.thread_rank(); pair < count * count; pair += group.num_threads()) {
    const unsigned one = pair / count, other = pair % count;
    if (one >= other) continue;
    const float* const column = own.columns + std::size_t{own.candidates[one]} * own.samples;
    const float* const next = own.columns + std::size_t{own.candidates[other]} * own.samples;
    own.are_dependent[pair] = own.tests_dependence() &&
                              !(fabsf(product_of(column, next, own.samples)) < own.dependence_max);
  }
  group.sync();
  if (is_leader) {
    unsigned chosen[kSetMax], size = 0;
    for (unsigned i = 0; i < count && size < own.parallel; ++i) {
      bool is_free = true;
      for (unsigned k = 0; k < size && is_free; ++k) is_free = own.are_dependent[chosen[k] * count + i] == 0;
      if (is_free) chosen[size++] = i;
    }
    for (unsigned i = 0; i < size; ++i) set.of[i] = own.candidates[chosen[i]];
    set.count = static_cast<std::int32_t>(size);
  }
  group.sync();
}

/// Tells the scheduler by how much a coordinate has changed.
GPUSOCK_FN inline void note_change(const Scheduler& own, std::uint32_t coordinate, float change) {
  if (own.policy == Policy::strads) own.priorities[coordinate] = fabsf(change) + own.priority_min;
}

}  // namespace lasso
