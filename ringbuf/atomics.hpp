#pragma once
/// @file The atomic references that every lock-free structure here is built on.
///
/// Each structure is a template over one of these policies, so that a model checker can hand in its own references and
/// explore the schedules and stale reads that the orderings allow. Production code uses the two policies below.

#include <cuda/atomic>

#include <cstdint>

namespace gpusock::ringbuf {

/// A word shared by a device and the host, or by two devices: system scope.
struct SystemAtomics {
  template <class T>
  using Ref = cuda::atomic_ref<T, cuda::thread_scope_system>;
};

/// A word shared by the threads of one device: device scope.
struct DeviceAtomics {
  template <class T>
  using Ref = cuda::atomic_ref<T, cuda::thread_scope_device>;
};

inline constexpr auto kRelaxed = cuda::memory_order_relaxed;
inline constexpr auto kAcquire = cuda::memory_order_acquire;
inline constexpr auto kRelease = cuda::memory_order_release;
inline constexpr auto kAcqRel = cuda::memory_order_acq_rel;

/// Bytes that keep two words written by different processors on different cache lines (an adjacent-line prefetcher
/// pulls lines in pairs).
inline constexpr std::uint64_t kWordStride = 128;

}  // namespace gpusock::ringbuf
