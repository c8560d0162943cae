#pragma once
/// @file Launching kernels on the CPU device: streams, faults, and the waits that kernels and host threads share.

#include "cpu_device/detail/vector_types.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cpu_device {

/// Maximum number of resident blocks (started and not ended) in one process; each runs on an OS thread of its own. A
/// grid whose blocks wait for one another must not have more. Further blocks start as others end.
inline constexpr unsigned kResidentBlocksMax = 1024;
inline constexpr unsigned kBlockThreadsMax = 1024;
inline constexpr std::size_t kSharedBytesMax = 227 * 1024;
/// How long relax() keeps the processor before it sleeps.
inline constexpr std::uint64_t kSpinNs = 200'000;

struct LaunchShape {
  dim3 grid{1};
  dim3 block{1};
  std::size_t shared_bytes = 0;
  /// True: a block all of whose threads wait gives its OS thread to other blocks of such launches. They take turns, so
  /// that many blocks which mostly wait need few OS threads and no wake-ups. The kernel must not use `__shared__`, but
  /// block_shared() instead, and must wait only by relax(), __nanosleep(), and atomics. While one block computes, the
  /// others on its OS thread stand still. TSan would not see races between such blocks, so with it nothing is shared.
  bool blocks_share_threads = false;
};

/// A kernel failed: an exception left it, it made an invalid memory access, or its threads wait for one another for
/// ever. The failed block was abandoned at once. The grid's other blocks are abandoned at their next wait. No
/// destructors run in an abandoned block.
class KernelFault : public std::runtime_error {
 public:
  KernelFault(std::string kernel, uint3 block, uint3 thread, const std::string& what_happened);
  const std::string& kernel() const noexcept { return kernel_; }
  uint3 block() const noexcept { return block_; }
  /// The thread that failed; in a deadlock, one of the threads that wait.
  uint3 thread() const noexcept { return thread_; }

 private:
  std::string kernel_;
  uint3 block_;
  uint3 thread_;
};

namespace detail {
struct StreamState;
}

/// Launches of one stream run in order; launches of different streams run concurrently. Any thread may use a stream at
/// any time, but no call may be in progress or follow when it is destroyed.
class Stream {
 public:
  Stream();
  ~Stream();  ///< Waits for all launches. A fault that no synchronize() reported is lost.
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Starts `body` on every CUDA thread of the shape, and returns at once. Throws std::invalid_argument on a shape
  /// beyond CUDA's limits (1024 threads per block, 227 KiB of dynamic shared memory, ...). After a fault, launches are
  /// dropped until synchronize() has reported it, because their input is missing. Throws std::system_error (EAGAIN) if
  /// it needs an OS thread and none can be started, and std::bad_alloc; then nothing is queued. If no thread can be
  /// started for later blocks, these wait until others end.
  void enqueue(LaunchShape shape, std::string kernel_name, std::function<void()> body);
  /// The same. A fault is reported with the name of the function at `kernel`.
  void enqueue_kernel(LaunchShape shape, const void* kernel, std::function<void()> body);

  /// Waits for all launches. Throws the first KernelFault since the last call, or std::logic_error if a kernel calls
  /// it.
  void synchronize();

  /// True if all launches have ended, like cudaStreamQuery.
  bool idle() const;

 private:
  std::shared_ptr<detail::StreamState> state_;
};

/// Launches `kernel` on every thread of the shape. Converts the arguments to its parameter types and copies them now;
/// every thread gets its own copy, as in CUDA. Errors: see Stream::enqueue.
template <class... Parameters, class... Arguments>
void launch(Stream& stream, LaunchShape shape, void (*kernel)(Parameters...), Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "a kernel is launched with all its arguments");
  static_assert((!std::is_reference_v<Parameters> && ...), "kernel parameters are passed by value");
  stream.enqueue_kernel(shape, reinterpret_cast<const void*>(kernel),
                        [kernel, values = std::tuple<std::remove_cv_t<Parameters>...>(
                                     std::forward<Arguments>(arguments)...)] { std::apply(kernel, values); });
}

/// True if the caller is a thread of a kernel.
bool in_kernel() noexcept;

/// The running block's index in its grid (x varies fastest, then y, then z); -1 outside of kernels.
std::int64_t running_block() noexcept;

/// One turn of a wait that has lasted `waited_ns` so far. In a kernel, it lets the block's other threads run. If all of
/// them wait too, or outside of kernels, the OS thread backs off: below 5 us it pauses at most, below kSpinNs it calls
/// sched_yield(), then it sleeps 20 to 500 us (longer if many blocks wait). In a kernel, relax() does not return if the
/// grid has failed: hold no lock.
void relax(std::uint64_t waited_ns) noexcept;

/// Two words by which waiting threads sleep until something has happened. Who makes it happen adds 1 to `rung` after
/// it. Then, if `sleepers` is not 0, it wakes all that wait for `rung` (futex(2)). Both accesses are seq_cst.
struct Bell {
  std::atomic<std::uint32_t>* rung;
  std::atomic<std::uint32_t>* sleepers;
};

/// The same, for a wait that ends only after this bell was rung. If it was not rung for some milliseconds, the OS
/// thread sleeps until it is, but for a tenth of the time waited so far, and 20 ms, at most. Not where several threads
/// of a block wait, or several blocks share the OS thread.
void relax(std::uint64_t waited_ns, const Bell& bell) noexcept;

/// Something that a thread has begun and end() must end if the thread's block is abandoned: no destructors run then.
struct Unfinished {
  using End = void (*)(void* self, std::int32_t handle, int kind) noexcept;

  End end = nullptr;  ///< nullptr: nothing
  void* self = nullptr;
  std::int32_t handle = 0;
  int kind = 0;
};

/// Notes what the running thread of a kernel has begun, and replaces the thread's previous note. If the block is
/// abandoned before the next note, end() is called on the OS thread that ran the block. Has no effect outside of
/// kernels. The fields are separate arguments so that they are passed in registers: each socket call makes two notes,
/// and copying a structure that was just written waits until the processor's earlier stores are done. Returns `result`,
/// so that its caller can end with this call.
void* note_unfinished(Unfinished::End end, void* self, std::int32_t handle, int kind, void* result) noexcept;

/// Keeps what the running thread of a kernel has begun until drop_unfinished(), in addition to the thread's note. If
/// the block is abandoned before that, end() is called as for a note, for the latest one first. False if there is no
/// memory. Outside of kernels it has no effect and returns true.
bool keep_unfinished(Unfinished::End end, void* self, std::int32_t handle, int kind) noexcept;
/// Drops the latest entry that the running thread has kept for this object and handle.
void drop_unfinished(void* self, std::int32_t handle) noexcept;

/// How often the running block has switched from one of its threads to another so far. 0 outside of kernels. Tests
/// count by it what a call costs, since that number does not depend on the machine.
std::uint64_t thread_switches() noexcept;

/// CLOCK_MONOTONIC in ns. In kernels, the clock that clock64() reads: the same, unless the DeviceShape gives kernels
/// another one.
std::uint64_t clock_ns() noexcept;

/// The block's dynamic shared memory: `shared_bytes` of the launch, 128-byte aligned. Null outside of kernels.
void* dynamic_shared() noexcept;

}  // namespace cpu_device
