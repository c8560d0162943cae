#pragma once
/// @file Launching kernels on the CPU device: streams, faults, and the waits that kernels and host threads share.

#include "cpu_device/detail/vector_types.hpp"

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

/// Blocks that can be resident (started and not ended) at the same time in one process; each is an OS thread. A grid
/// whose blocks wait for one another must fit; blocks beyond it start as others end.
inline constexpr unsigned kResidentBlocksMax = 1024;
inline constexpr unsigned kBlockThreadsMax = 1024;
inline constexpr std::size_t kSharedBytesMax = 227 * 1024;
/// How long relax() keeps the processor before it sleeps.
inline constexpr std::uint64_t kSpinNs = 200'000;

struct LaunchShape {
  dim3 grid{1};
  dim3 block{1};
  std::size_t shared_bytes = 0;
};

/// A kernel failed: an exception left it, it made an invalid memory access, or its threads wait for one another for
/// ever. Its block was abandoned where it stood (no destructors run), and so are the grid's other blocks at their next
/// wait.
class KernelFault : public std::runtime_error {
 public:
  KernelFault(std::string kernel, uint3 block, uint3 thread, const std::string& what_happened);
  const std::string& kernel() const noexcept { return kernel_; }
  uint3 block() const noexcept { return block_; }
  /// The thread that failed; of a deadlock, one that waits.
  uint3 thread() const noexcept { return thread_; }

 private:
  std::string kernel_;
  uint3 block_;
  uint3 thread_;
};

namespace detail {
struct StreamState;
}

/// Launches of one stream run in order; those of different streams run concurrently. Any thread may use a stream at any
/// time; only the destructor must be the last to touch it.
class Stream {
 public:
  Stream();
  ~Stream();  ///< Waits for all launches. A fault that no synchronize() reported is lost.
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Starts `body` on every CUDA thread of the shape, and returns at once. Throws std::invalid_argument on a shape
  /// beyond CUDA's limits (1024 threads per block, 227 KiB of dynamic shared memory, ...). After a fault, launches are
  /// dropped until synchronize() has reported it: their input was never made. Throws std::system_error (EAGAIN) where
  /// it needs an OS thread and none can be started, and std::bad_alloc; then nothing is queued. Blocks for which no
  /// thread can be started later wait until others end.
  void enqueue(LaunchShape shape, std::string kernel_name, std::function<void()> body);
  /// The same, named after the function at `kernel` where a fault must be reported.
  void enqueue_kernel(LaunchShape shape, const void* kernel, std::function<void()> body);

  /// Waits for all launches; throws the first KernelFault since the last call. Not for kernels: there it throws
  /// std::logic_error.
  void synchronize();

  /// True if all launches have ended, like cudaStreamQuery.
  bool idle() const;

 private:
  std::shared_ptr<detail::StreamState> state_;
};

/// Launches `kernel` on every thread of the shape; the arguments are converted to its parameter types and copied now,
/// and every thread gets its own copy, as in CUDA. Errors: see Stream::enqueue.
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

/// The running block's index in its grid, x fastest, then y and z; -1 outside of kernels.
std::int64_t running_block() noexcept;

/// One turn of a wait that has lasted `waited_ns` so far. In a kernel the block's other threads run; when none of them
/// can do more than wait, or outside of kernels, the OS thread backs off: not at all below 5 us, by sched_yield() below
/// kSpinNs, then by sleeping 20 to 500 us. In a kernel it does not return when the grid has failed meanwhile: hold no
/// lock.
void relax(std::uint64_t waited_ns) noexcept;

/// What is to be ended for a thread whose block is abandoned: its destructors do not run.
struct Unfinished {
  using End = void (*)(void* self, std::int32_t handle, int kind) noexcept;

  End end = nullptr;  ///< nullptr: nothing
  void* self = nullptr;
  std::int32_t handle = 0;
  int kind = 0;
};

/// Notes what the running thread of a kernel has begun, in the place of what was noted before. Where the block is
/// abandoned before the next note, end() is called on the OS thread that ran the block. Of no effect outside of
/// kernels. The fields are arguments of their own, which travel in registers: each call of a socket notes itself twice,
/// and copying a structure that was just written waits until the processor's earlier stores are done. Returns `result`,
/// so that it can be the last that its caller does.
void* note_unfinished(Unfinished::End end, void* self, std::int32_t handle, int kind, void* result) noexcept;

/// Keeps what the running thread of a kernel has begun until drop_unfinished(), beside what it notes. Where the block
/// is abandoned before, end() is called as for a note, for the latest first. False: there is no memory. Outside of
/// kernels true, and of no effect.
bool keep_unfinished(Unfinished::End end, void* self, std::int32_t handle, int kind) noexcept;
/// Drops the latest that the running thread has kept for this object and handle.
void drop_unfinished(void* self, std::int32_t handle) noexcept;

/// CLOCK_MONOTONIC in ns. In kernels what clock64() reads: the same, unless the DeviceShape gives them a clock of their
/// own.
std::uint64_t clock_ns() noexcept;

/// The block's dynamic shared memory: `shared_bytes` of the launch, 128-byte aligned. Outside of kernels, null.
void* dynamic_shared() noexcept;

}  // namespace cpu_device
