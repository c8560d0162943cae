#pragma once
/// @file CUDA's cooperative groups within one block: thread, block, tile and coalesced groups.

#include "cpu_device/detail/builtins.hpp"
#include "cpu_device/detail/warp.hpp"

#include <cstring>
#include <type_traits>

namespace cooperative_groups {

namespace detail {

/// Up to 32 lanes of one warp. Ranks count the lanes of the mask from the lowest.
class LaneGroup {
 public:
  explicit LaneGroup(unsigned mask) : mask_(mask), rank_(popcount(mask & ((1u << cpu_device::detail::lane()) - 1))) {}

  unsigned thread_rank() const { return rank_; }
  unsigned num_threads() const { return popcount(mask_); }
  unsigned size() const { return num_threads(); }
  void sync() const { cpu_device::detail::warp_sync(mask_); }
  unsigned mask() const { return mask_; }  ///< not in CUDA

  /// Takes any trivially copyable value of at most 32 bytes.
  template <class T>
  T shfl(T value, unsigned rank) const {
    return from_lane(value, lane_of(rank % num_threads()));
  }
  template <class T>
  T shfl_up(T value, unsigned delta) const {
    return from_lane(value, lane_of(rank_ < delta ? rank_ : rank_ - delta));
  }
  template <class T>
  T shfl_down(T value, unsigned delta) const {
    return from_lane(value, lane_of(delta >= num_threads() - rank_ ? rank_ : rank_ + delta));
  }

  unsigned ballot(int predicate) const { return pack(cpu_device::detail::warp_ballot(mask_, predicate != 0)); }
  int any(int predicate) const { return cpu_device::detail::warp_ballot(mask_, predicate != 0) != 0; }
  int all(int predicate) const { return cpu_device::detail::warp_ballot(mask_, predicate == 0) == 0; }
  template <class T>
  unsigned match_any(T value) const {
    return pack(__match_any_sync(mask_, value));
  }

 protected:
  static unsigned popcount(unsigned bits) { return static_cast<unsigned>(__builtin_popcount(bits)); }
  unsigned lane_of(unsigned rank) const {
    unsigned lanes = mask_;
    while (rank-- != 0) lanes &= lanes - 1;
    return static_cast<unsigned>(__builtin_ctz(lanes));
  }

  template <class T>
  T from_lane(T value, unsigned lane) const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 32);
    std::uint64_t words[(sizeof(T) + 7) / 8] = {};
    std::memcpy(words, &value, sizeof value);
    for (auto& word : words) word = cpu_device::detail::warp_shuffle(mask_, word, lane);
    std::memcpy(&value, words, sizeof value);
    return value;
  }

 private:
  /// Converts a mask of lanes to a mask of ranks.
  unsigned pack(unsigned lanes) const {
    unsigned ranks = 0, bit = 1;
    for (unsigned rest = mask_; rest != 0; rest &= rest - 1, bit <<= 1) {
      if (lanes & rest & -rest) ranks |= bit;
    }
    return ranks;
  }

  unsigned mask_;
  unsigned rank_;
};

inline unsigned block_threads() { return blockDim.x * blockDim.y * blockDim.z; }
inline unsigned linear_thread() { return cpu_device::detail::t_thread->linear; }

/// The lanes of the caller's tile that exist: the last warp of a block may be partial.
inline unsigned tile_mask(unsigned tile_size) {
  const unsigned lane = cpu_device::detail::lane(), first = lane & ~(tile_size - 1);
  const unsigned warp_first = linear_thread() - lane;
  const unsigned there = block_threads() - warp_first;  // lanes of this warp
  unsigned mask = (tile_size == 32 ? ~0u : (1u << tile_size) - 1) << first;
  if (there < 32) mask &= (1u << there) - 1;
  return mask;
}

}  // namespace detail

/// All threads of the block.
class thread_block {
 public:
  static void sync() { __syncthreads(); }
  static unsigned thread_rank() { return detail::linear_thread(); }
  static unsigned num_threads() { return detail::block_threads(); }
  static unsigned size() { return num_threads(); }
  static uint3 group_index() { return blockIdx; }
  static uint3 thread_index() { return threadIdx; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

/// kSize consecutive threads of a block, a power of two up to a warp.
template <unsigned kSize, class Parent = void>
class thread_block_tile : public detail::LaneGroup {
  static_assert(kSize >= 1 && kSize <= 32 && (kSize & (kSize - 1)) == 0, "a tile is 1, 2, 4, 8, 16 or 32 threads");

 public:
  explicit thread_block_tile(unsigned parent_first, unsigned parent_threads)
      : LaneGroup(detail::tile_mask(kSize)),
        meta_rank_((detail::linear_thread() - parent_first) / kSize),
        meta_size_((parent_threads + kSize - 1) / kSize) {}

  static constexpr unsigned size() { return kSize; }
  static constexpr unsigned num_threads() { return kSize; }
  unsigned meta_group_rank() const { return meta_rank_; }
  unsigned meta_group_size() const { return meta_size_; }

  template <class T>
  T shfl(T value, unsigned rank) const {
    return from_lane(value, first_lane() + rank % kSize);
  }
  template <class T>
  T shfl_up(T value, unsigned delta) const {
    return from_lane(value, cpu_device::detail::LaneSegment(kSize).up(delta));
  }
  template <class T>
  T shfl_down(T value, unsigned delta) const {
    return from_lane(value, cpu_device::detail::LaneSegment(kSize).down(delta));
  }
  template <class T>
  T shfl_xor(T value, unsigned lane_mask) const {
    return from_lane(value, first_lane() + ((thread_rank() ^ lane_mask) % kSize));
  }

 private:
  static unsigned first_lane() { return cpu_device::detail::lane() & ~(kSize - 1); }

  unsigned meta_rank_;
  unsigned meta_size_;
};

/// Threads of a warp that arrived at the same call together.
class coalesced_group : public detail::LaneGroup {
 public:
  explicit coalesced_group(unsigned mask, unsigned meta_rank = 0, unsigned meta_size = 1)
      : LaneGroup(mask), meta_rank_(meta_rank), meta_size_(meta_size) {}
  unsigned meta_group_rank() const { return meta_rank_; }
  unsigned meta_group_size() const { return meta_size_; }

 private:
  unsigned meta_rank_;
  unsigned meta_size_;
};

/// The threads of the warp that arrive at this call together, which is before all others wait or have exited. There may
/// be fewer than a program's source suggests, as CUDA allows.
__attribute__((always_inline)) inline coalesced_group coalesced_threads() {
  return coalesced_group(cpu_device::detail::active_lanes());
}

/// The calling thread alone.
inline thread_block_tile<1> this_thread() { return thread_block_tile<1>(detail::linear_thread(), 1); }

template <unsigned kSize>
inline thread_block_tile<kSize> tiled_partition(const thread_block&) {
  return thread_block_tile<kSize>(0, detail::block_threads());
}
template <unsigned kSize, unsigned kParentSize, class Grandparent>
inline thread_block_tile<kSize> tiled_partition(const thread_block_tile<kParentSize, Grandparent>& parent) {
  static_assert(kSize <= kParentSize, "a tile is no larger than what it is a part of");
  return thread_block_tile<kSize>(detail::linear_thread() - parent.thread_rank(), kParentSize);
}

template <class Group>
inline void sync(const Group& group) {
  group.sync();
}

/// Combines the values of all threads by `combine`, in rank order. Every thread gets the result.
template <class T, class Group, class Combine>
inline T reduce(const Group& group, T value, Combine combine) {
  T total = group.shfl(value, 0);
  for (unsigned rank = 1; rank < group.num_threads(); ++rank) total = combine(total, group.shfl(value, rank));
  return total;
}
template <class T>
struct plus {
  T operator()(const T& a, const T& b) const { return a + b; }
};
template <class T>
struct less {
  T operator()(const T& a, const T& b) const { return b < a ? b : a; }
};
template <class T>
struct greater {
  T operator()(const T& a, const T& b) const { return a < b ? b : a; }
};

}  // namespace cooperative_groups
