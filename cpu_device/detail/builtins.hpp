#pragma once
/// @file The built-ins of a running thread: indices, barriers, time.

#include "cpu_device/detail/meeting.hpp"
#include "cpu_device/detail/vector_types.hpp"

#include <cstddef>
#include <cstdint>

namespace cpu_device::detail {

/// The block that this OS thread runs.
struct BlockInfo {
  uint3 index{0, 0, 0};
  dim3 block_dim{1};
  dim3 grid_dim{1};
  void* dynamic_shared = nullptr;
  std::byte* shared = nullptr;      ///< memory for the block's variables (block_shared.hpp)
  bool leaders_make_calls = false;  ///< DeviceShape; false for host threads
};

/// The running CUDA thread. Host threads see thread 0 of block 0, and a block of one thread.
struct ThreadInfo {
  uint3 index{0, 0, 0};
  unsigned linear = 0;  ///< number in the block; x varies fastest; 32 consecutive numbers are a warp
  const BlockInfo* block = nullptr;
};

/// Never null. A block never changes its OS thread, so the compiler may keep this variable's address across switches.
extern constinit thread_local const ThreadInfo* t_thread;

/// The result of a block barrier: the number of threads that arrived, and the number of those whose predicate holds.
struct BarrierCount {
  int arrived;
  int holding;
};
inline const BarrierCount& block_barrier(bool predicate) {
  return *static_cast<const BarrierCount*>(cpu_device_meet(Meeting::barrier, 0, predicate, 0));
}

/// Lets the block's other threads run without saying that this one waits.
void yield() noexcept;
void nanosleep(std::uint64_t duration_ns) noexcept;
/// The clock as kernels see it (DeviceShape), in ns.
std::uint64_t kernel_clock_ns() noexcept;

}  // namespace cpu_device::detail

#define threadIdx (::cpu_device::detail::t_thread->index)
#define blockIdx (::cpu_device::detail::t_thread->block->index)
#define blockDim (::cpu_device::detail::t_thread->block->block_dim)
#define gridDim (::cpu_device::detail::t_thread->block->grid_dim)

inline constexpr int warpSize = 32;

inline void __syncthreads() { cpu_device_meet(cpu_device::detail::Meeting::barrier, 0, 0, 0); }
inline int __syncthreads_count(int predicate) { return cpu_device::detail::block_barrier(predicate != 0).holding; }
inline int __syncthreads_or(int predicate) { return cpu_device::detail::block_barrier(predicate != 0).holding != 0; }
inline int __syncthreads_and(int predicate) {
  const auto& count = cpu_device::detail::block_barrier(predicate != 0);
  return count.holding == count.arrived;
}

inline void __nanosleep(unsigned duration_ns) { cpu_device::detail::nanosleep(duration_ns); }
/// The device clock; on the CPU device one tick is a nanosecond.
inline long long clock64() { return static_cast<long long>(cpu_device::detail::kernel_clock_ns()); }
