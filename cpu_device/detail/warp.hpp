#pragma once
/// @file Warp operations. The threads in `mask` wait for one another, even if they have diverged. Threads that have
/// exited do not count.

#include "cpu_device/detail/builtins.hpp"

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace cpu_device::detail {

/// Waits for the other threads of `mask`, as all these operations do. It is a fault if the caller is not in its mask,
/// or if threads meet in different operations.
inline void warp_sync(unsigned mask) { cpu_device_meet(Meeting::sync, mask, 0, 0); }
/// Returns the value of `source_lane`, or the caller's own value if that lane is not in the mask or has exited.
inline std::uint64_t warp_shuffle(unsigned mask, std::uint64_t value, unsigned source_lane) {
  return *static_cast<const std::uint64_t*>(cpu_device_meet(Meeting::shuffle, mask, value, source_lane));
}
inline unsigned warp_ballot(unsigned mask, bool predicate) {
  return *static_cast<const unsigned*>(cpu_device_meet(Meeting::ballot, mask, predicate, 0));
}
/// Stores each lane's value in `values`. Returns the mask of the lanes that have one.
inline unsigned warp_gather(unsigned mask, std::uint64_t value, std::uint64_t (&values)[32]) {
  const auto at = reinterpret_cast<std::uintptr_t>(&values);
  return *static_cast<const unsigned*>(cpu_device_meet(Meeting::gather, mask, value, at));
}
/// The warp's threads that arrive at the same call together, which is before all others wait or have exited.
unsigned active_lanes() noexcept;
inline unsigned lane() noexcept { return t_thread->linear % 32; }

template <class T>
inline T shuffle(unsigned mask, T value, unsigned source_lane) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = warp_shuffle(mask, bits, source_lane);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// The lane from which a shuffle in segments of `width` lanes reads: the caller's own if the source is not in reach.
struct LaneSegment {
  unsigned lane, first, width;
  explicit LaneSegment(int lanes)
      : lane(detail::lane()), first(lane & ~(unsigned(lanes) - 1)), width(unsigned(lanes)) {}
  unsigned at(int source) const { return first + (unsigned(source) & (width - 1)); }
  unsigned up(unsigned delta) const { return lane - first < delta ? lane : lane - delta; }
  unsigned down(unsigned delta) const { return delta >= width - (lane - first) ? lane : lane + delta; }
  /// Lanes of later segments are out of reach, but lanes of earlier segments are not: this is the hardware's rule.
  unsigned exchange(int lane_mask) const {
    const unsigned source = lane ^ unsigned(lane_mask);
    return source >= first + width || source >= 32 ? lane : source;
  }
};

}  // namespace cpu_device::detail

inline void __syncwarp(unsigned mask = 0xffffffffu) { cpu_device::detail::warp_sync(mask); }

template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  return cpu_device::detail::shuffle(mask, value, cpu_device::detail::LaneSegment(width).at(source));
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return cpu_device::detail::shuffle(mask, value, cpu_device::detail::LaneSegment(width).up(delta));
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return cpu_device::detail::shuffle(mask, value, cpu_device::detail::LaneSegment(width).down(delta));
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  return cpu_device::detail::shuffle(mask, value, cpu_device::detail::LaneSegment(width).exchange(lane_mask));
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return cpu_device::detail::warp_ballot(mask, predicate != 0);
}
inline int __any_sync(unsigned mask, int predicate) {
  return cpu_device::detail::warp_ballot(mask, predicate != 0) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return cpu_device::detail::warp_ballot(mask, predicate == 0) == 0;
}
__attribute__((always_inline)) inline unsigned __activemask() { return cpu_device::detail::active_lanes(); }

namespace cpu_device::detail {

template <class T, class Combine>
inline T warp_reduce(unsigned mask, T value, Combine combine) {
  std::uint64_t values[32];
  unsigned lanes = warp_gather(mask, static_cast<std::uint64_t>(value), values) & ~(1u << lane());
  for (; lanes != 0; lanes &= lanes - 1) value = combine(value, static_cast<T>(values[__builtin_ctz(lanes)]));
  return value;
}

}  // namespace cpu_device::detail

#define CPU_DEVICE_REDUCE(name, type, expression)                                                           \
  inline type name(unsigned mask, type value) {                                                             \
    return cpu_device::detail::warp_reduce(mask, value, [](type a, type b) -> type { return expression; }); \
  }
CPU_DEVICE_REDUCE(__reduce_add_sync, unsigned, a + b)
CPU_DEVICE_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
CPU_DEVICE_REDUCE(__reduce_max_sync, unsigned, a < b ? b : a)
CPU_DEVICE_REDUCE(__reduce_add_sync, int, static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)))
CPU_DEVICE_REDUCE(__reduce_min_sync, int, a < b ? a : b)
CPU_DEVICE_REDUCE(__reduce_max_sync, int, a < b ? b : a)
CPU_DEVICE_REDUCE(__reduce_and_sync, unsigned, a& b)
CPU_DEVICE_REDUCE(__reduce_or_sync, unsigned, a | b)
CPU_DEVICE_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef CPU_DEVICE_REDUCE

/// The lanes of `mask` whose value equals the caller's.
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0, values[32];
  std::memcpy(&bits, &value, sizeof value);
  unsigned equal = 0;
  for (unsigned lanes = cpu_device::detail::warp_gather(mask, bits, values); lanes != 0; lanes &= lanes - 1) {
    const unsigned lane = unsigned(__builtin_ctz(lanes));
    if (values[lane] == bits) equal |= 1u << lane;
  }
  return equal;
}
