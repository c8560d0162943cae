#pragma once
/// @file Stacks that threads of a block run on, and the switch between them. Announces each switch to the sanitizers.
/// A thread that meets its group has a shorter way to the next thread (cpu_device_meet).

#include "cpu_device/sanitizers.hpp"

#if !defined(__x86_64__)
#include <boost/context/detail/fcontext.hpp>
#endif

#include <cstddef>

/// True if cpu_device_meet() is written for this processor. Sanitizers must hear of each switch: there it is C++.
#if defined(__x86_64__) && !CPU_DEVICE_ASAN && !CPU_DEVICE_TSAN
#define CPU_DEVICE_SWITCHES_AT_MEETINGS 1
#else
#define CPU_DEVICE_SWITCHES_AT_MEETINGS 0
#endif

namespace cpu_device::detail {

/// Bytes of a CUDA thread's stack; sanitizers make frames larger.
inline constexpr std::size_t kStackBytes = (CPU_DEVICE_ASAN || CPU_DEVICE_TSAN) ? 512 * 1024 : 128 * 1024;

/// A stack, and the execution that is suspended on it. It belongs to the same OS thread for its whole life.
class Carrier {
 public:
  using Entry = void (*)(Carrier& self);

  /// The calling OS thread's own stack.
  Carrier();
  /// A new stack with a guard below it. The first switch to it calls `entry`, which must not return. Throws
  /// std::bad_alloc if there is no address space or the process has too many mappings (vm.max_map_count).
  explicit Carrier(Entry entry);
  /// Abandons what is suspended on the stack, without unwinding it.
  ~Carrier();
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  bool guard_contains(const void* address) const noexcept;

  /// Suspends the caller on this stack, and resumes what is suspended on `to`. `result`: what cpu_device_meet() returns
  /// there, if `to` is suspended in it.
  void switch_to(Carrier& to, const void* result = nullptr) noexcept;
  /// Resumes what is suspended on `to`. A signal handler on another stack calls it; what ran on this stack never
  /// resumes.
  [[noreturn]] void leave_for(Carrier& to) noexcept;

  // For cpu_device_meet(), which saves and resumes frames itself. They are as those that switch_to() makes.
  void* frame() const noexcept { return context_; }
  void set_frame(void* frame) noexcept { context_ = frame; }

  Carrier* next = nullptr;  ///< in the owner's list of carriers

 private:
#if defined(__x86_64__)
  friend void enter_carrier(Carrier& self);
#else
  friend void enter_carrier(boost::context::detail::transfer_t);
  struct Switch;
#endif

  static void jump(void*& from, Carrier& to, const void* result) noexcept;

  void* context_ = nullptr;  ///< the frame of what is suspended
  Entry entry_ = nullptr;
  std::byte* mapping_ = nullptr;  ///< guard and stack; null for an OS thread's own stack
  const void* stack_low_ = nullptr;
  std::size_t stack_bytes_ = 0;
  [[maybe_unused]] void* tsan_fiber_ = nullptr;  // for sanitizer builds
  [[maybe_unused]] void* fake_stack_ = nullptr;
};

}  // namespace cpu_device::detail
