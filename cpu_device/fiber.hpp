#pragma once
/// @file Stacks that threads of a block run on, and the switch between them. Announces each switch to the sanitizers.

#include "cpu_device/sanitizers.hpp"

#include <boost/context/detail/fcontext.hpp>

#include <cstddef>

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

  /// Suspends the caller on this stack, and resumes what is suspended on `to`.
  void switch_to(Carrier& to) noexcept;
  /// Resumes what is suspended on `to`. A signal handler on another stack calls it; what ran on this stack never
  /// resumes.
  [[noreturn]] void leave_for(Carrier& to) noexcept;

  Carrier* next = nullptr;  ///< in the owner's list of carriers

 private:
  friend void enter_carrier(boost::context::detail::transfer_t);

  boost::context::detail::fcontext_t context_ = nullptr;
  Entry entry_ = nullptr;
  std::byte* mapping_ = nullptr;  ///< guard and stack; null for an OS thread's own stack
  const void* stack_low_ = nullptr;
  std::size_t stack_bytes_ = 0;
  [[maybe_unused]] void* tsan_fiber_ = nullptr;  // for sanitizer builds
  [[maybe_unused]] void* fake_stack_ = nullptr;
};

}  // namespace cpu_device::detail
