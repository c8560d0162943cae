#pragma once
/// @file Groups: the threads that make one socket call together.
///
/// Any cooperative group of at most one block can make a call; this_thread(), this_warp() and this_block() are the
/// usual groups. All threads of a group call with the same arguments and get the same result. Host threads use
/// this_thread().

#include "gpusock/detail/copy_words.hpp"
#include "ringbuf/annotations.hpp"

#if defined(__CUDACC__)
#include <cooperative_groups.h>
#elif GPUSOCK_KERNELS_ON_CPU
#include "cpu_device/cuda.hpp"
#endif

#include <cstdint>
#include <type_traits>

namespace gpusock {

/// A group of one: the calling thread. It has the members of every cooperative group.
struct ThisThread {
  GPUSOCK_FN unsigned thread_rank() const { return 0; }  ///< this thread's number in the group
  GPUSOCK_FN unsigned size() const { return 1; }         ///< as num_threads()
  GPUSOCK_FN unsigned num_threads() const { return 1; }  ///< how many threads the group has
  GPUSOCK_FN void sync() const {}                        ///< waits for all threads of the group
};

/// The calling thread alone, in a kernel or on the host.
GPUSOCK_FN inline ThisThread this_thread() { return {}; }

#if defined(__CUDACC__) || GPUSOCK_KERNELS_ON_CPU
/// The calling thread's warp: all 32 threads call together.
__device__ inline auto this_warp() {
  return cooperative_groups::tiled_partition<32>(cooperative_groups::this_thread_block());
}

/// The calling thread's block: all its threads call together.
__device__ inline cooperative_groups::thread_block this_block() { return cooperative_groups::this_thread_block(); }
#endif

/// GPUSOCK_SHARED(name, type): declares a variable that the block's threads share, as __shared__ does, aligned to at
/// least 16 bytes, and uninitialised. `type` may be an array: GPUSOCK_SHARED(counts, int[32]). On the CPU device,
/// kernels whose blocks share threads (LaunchShape::blocks_share_threads) must declare all such variables so. Only in
/// code that runs in kernels; in a function for kernels and hosts, only where GPUSOCK_ON_GPU or GPUSOCK_KERNELS_ON_CPU
/// is 1.
#if GPUSOCK_KERNELS_ON_CPU
// NOLINTNEXTLINE(bugprone-macro-parentheses): it declares a name
#define GPUSOCK_SHARED(name, ...) auto& name = ::cpu_device::block_shared<__VA_ARGS__>([] {})
#else
#define GPUSOCK_SHARED(name, ...) __shared__ __align__(16) std::type_identity_t<__VA_ARGS__> name
#endif

namespace detail {

#if GPUSOCK_KERNELS_ON_CPU
/// A function of two lines that begins with GPUSOCK_CALL_OF_LEADER. The CPU device's kernels hold it themselves, so
/// that a thread that leaves a meeting goes on in its kernel. From a function between the two it would return, and the
/// processor would predict that it returns to where the thread came from that ran before: one wrong prediction takes as
/// long as all the rest of a meeting for a thread.
#define GPUSOCK_FN_OF_GROUP [[gnu::always_inline]] inline
/// What such a function calls if all threads make the call. It stays apart, or kernels would be large.
#define GPUSOCK_FN_BY_ALL [[gnu::noinline]]
struct CallOfOne {
  CallOfOne(const ThisThread&, const char*) {}
};
template <class Group>
using GroupCall = std::conditional_t<std::is_same_v<Group, ThisThread>, CallOfOne, cpu_device::GroupCall>;
/// Begins a function that all threads of `group` call together. The CPU device reports it if only some of them do.
#define GPUSOCK_GROUP_CALL_NAMED(group, name) \
  const ::gpusock::detail::GroupCall<std::remove_cvref_t<decltype(group)>> group_call(group, name)
/// If the CPU device's groups meet once for a call, their leader makes `call`, and the function returns its result to
/// all threads. Otherwise the function goes on. `...`: nothing, or a variable that the call writes.
#define GPUSOCK_CALL_OF_LEADER(group, call, ...)                                                             \
  if constexpr (!std::is_same_v<std::remove_cvref_t<decltype(group)>, ::gpusock::ThisThread>) {              \
    if (::cpu_device::leaders_call()) [[likely]]                                                             \
      return ::cpu_device::call_for_group(group, __func__, [&] { return call; } __VA_OPT__(, ) __VA_ARGS__); \
  }                                                                                                          \
  static_assert(true)
#else
/// A function of two lines that begins with GPUSOCK_CALL_OF_LEADER.
#define GPUSOCK_FN_OF_GROUP GPUSOCK_FN
/// The part of a call that all threads of a group make.
#define GPUSOCK_FN_BY_ALL GPUSOCK_FN
/// Begins a function that all threads of `group` call together. Nothing checks that they do.
#define GPUSOCK_GROUP_CALL_NAMED(group, name) static_cast<void>(0)
/// Nothing here: all threads take part in `call`.
#define GPUSOCK_CALL_OF_LEADER(group, call, ...) static_cast<void>(0)
#endif
/// The same as GPUSOCK_GROUP_CALL_NAMED, with the function's own name.
#define GPUSOCK_GROUP_CALL(group) GPUSOCK_GROUP_CALL_NAMED(group, __func__)
/// Begins a function that all threads of `group` call together, and that does what `call`, the call of one thread,
/// does.
#define GPUSOCK_GROUP_CALL_OF_ONE(group, call, ...)               \
  GPUSOCK_CALL_OF_LEADER(group, call __VA_OPT__(, ) __VA_ARGS__); \
  GPUSOCK_GROUP_CALL(group)

/// Returns the leader's value to every thread of the group. T is trivially copyable and at most 16 bytes. This is also
/// a barrier of the group: after it, all threads see what its threads wrote before. The group must pass another barrier
/// before its next broadcast, because a block's value stays in one place until then.
template <class Group, class T>
GPUSOCK_FN T broadcast(const Group& group, const T& value) {
#if defined(__CUDACC__) || GPUSOCK_KERNELS_ON_CPU
  if constexpr (requires { group.shfl(0ull, 0); }) {
    static_assert(sizeof(T) % sizeof(unsigned long long) == 0);
    constexpr int kWords = sizeof(T) / sizeof(unsigned long long);
    union {
      T value;
      unsigned long long words[kWords];
    } copy{value};
    group.sync();
    for (int i = 0; i < kWords; ++i) copy.words[i] = group.shfl(copy.words[i], 0);
    return copy.value;
  } else {
    static_assert(std::is_same_v<Group, cooperative_groups::thread_block>,
                  "a group is a thread, a tile of at most 32 threads, a coalesced group, or the block");
#if !defined(__CUDACC__) || defined(__CUDA_ARCH__)
    GPUSOCK_SHARED(storage, unsigned char[16]);
    static_assert(sizeof(T) <= sizeof storage);
    T& shared = *reinterpret_cast<T*>(storage);
    if (group.thread_rank() == 0) shared = value;
    group.sync();
    return shared;
#else
    return value;
#endif
  }
#else
  return value;
#endif
}

/// For a group of one: it already has the value.
template <class T>
GPUSOCK_FN T broadcast(const ThisThread&, const T& value) {
  return value;
}

#if defined(__CUDACC__) || GPUSOCK_KERNELS_ON_CPU
/// The operations of reduce(): kNothing is the value to start from, of() combines two values, and put() combines a
/// value with a word that threads share.
struct Sum {
  static constexpr int kNothing = 0;
  GPUSOCK_FN static int of(int a, int b) { return a + b; }
  __device__ static void put(int& into, int value) {
    if (value != 0) atomicAdd(&into, value);
  }
};
struct Smallest {
  static constexpr unsigned long long kNothing = ~0ull;
  GPUSOCK_FN static unsigned long long of(unsigned long long a, unsigned long long b) { return b < a ? b : a; }
  __device__ static void put(unsigned long long& into, unsigned long long value) { atomicMin(&into, value); }
};

/// Combines every thread's value into one, and returns it to every thread of the group. This is also a barrier of the
/// group, as broadcast() is.
template <class Made, class Group, class T>
GPUSOCK_FN T reduce(const Group& group, T value) {
  if constexpr (requires { group.shfl(value, 0); }) {
    group.sync();
    T all = Made::kNothing;
    for (unsigned rank = 0; rank < group.num_threads(); ++rank) all = Made::of(all, group.shfl(value, rank));
    return all;
  } else {
#if !defined(__CUDACC__) || defined(__CUDA_ARCH__)
    GPUSOCK_SHARED(all, T);
    if (group.thread_rank() == 0) all = Made::kNothing;
    group.sync();
    Made::put(all, value);
    group.sync();
    const T result = all;
    group.sync();  // all have read it before the next call writes
    return result;
#else
    return value;
#endif
  }
}
#endif

/// Returns the sum of every thread's value to every thread of the group. This is also a barrier, as broadcast() is.
template <class Group>
GPUSOCK_FN int sum(const Group& group, int value) {
#if defined(__CUDACC__) || GPUSOCK_KERNELS_ON_CPU
  return reduce<Sum>(group, value);
#else
  return value;
#endif
}

GPUSOCK_FN inline int sum(const ThisThread&, int value) { return value; }

/// Returns the smallest of the threads' values to every thread of the group. This is also a barrier, as broadcast() is.
template <class Group>
GPUSOCK_FN std::uint64_t smallest(const Group& group, std::uint64_t value) {
#if defined(__CUDACC__) || GPUSOCK_KERNELS_ON_CPU
  return reduce<Smallest>(group, static_cast<unsigned long long>(value));
#else
  return value;
#endif
}

GPUSOCK_FN inline std::uint64_t smallest(const ThisThread&, std::uint64_t value) { return value; }

}  // namespace detail

/// Copies `bytes` bytes with all threads of the group, as send() and recv() do: by words of 16 bytes, whatever the
/// alignments of the two memories. These must not overlap. Use it for the room of reserve() and the bytes of peek(). It
/// has no barrier: the caller needs one before other threads use the copied bytes; commit() and release() have one. All
/// threads of the group call it. It cannot fail.
template <class Group>
GPUSOCK_FN void copy(const Group& group, void* to, const void* from, std::uint64_t bytes) {
#if GPUSOCK_ON_GPU
  detail::copy_by_words(group.thread_rank(), group.num_threads(), static_cast<unsigned char*>(to),
                        static_cast<const unsigned char*>(from), bytes);
#else
  // On a CPU a block's threads share one processor: one copy by the leader is fastest.
  if (group.thread_rank() == 0) __builtin_memcpy(to, from, bytes);
#endif
}

}  // namespace gpusock
