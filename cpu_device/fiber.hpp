#pragma once
/// @file Stacks that threads of a block run on, and the switch between them. Announces each switch to the sanitizers.

#include "cpu_device/sanitizers.hpp"

#include <boost/context/detail/fcontext.hpp>

#include <cstddef>

namespace cpu_device::detail {

/// Bytes of a CUDA thread's stack; sanitizers make frames larger.
inline constexpr std::size_t kStackBytes = (CPU_DEVICE_ASAN || CPU_DEVICE_TSAN) ? 512 * 1024 : 128 * 1024;

/// A stack and what is suspended on it. It belongs to one OS thread for life.
class Carrier {
 public:
  using Entry = void (*)(Carrier& self);

  /// The calling OS thread's own stack.
  Carrier();
  /// A new stack with a guard below it, on which the first switch calls `entry`, which never returns. Throws
  /// std::bad_alloc where there is no address space or the process has too many mappings (vm.max_map_count).
  explicit Carrier(Entry entry);
  /// What is suspended here is abandoned: nothing is unwound.
  ~Carrier();
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  bool guard_contains(const void* address) const noexcept;

  /// Suspends the caller here and resumes what is suspended on `to`.
  void switch_to(Carrier& to) noexcept;
  /// As switch_to, out of a signal handler on another stack: what ran here never resumes.
  [[noreturn]] void leave_for(Carrier& to) noexcept;

  Carrier* next = nullptr;  ///< in a list of carriers that an owner keeps

 private:
  friend void enter_carrier(boost::context::detail::transfer_t);

  boost::context::detail::fcontext_t context_ = nullptr;
  Entry entry_ = nullptr;
  std::byte* mapping_ = nullptr;  ///< guard and stack; null for an OS thread's own stack
  const void* stack_low_ = nullptr;
  std::size_t stack_bytes_ = 0;
  [[maybe_unused]] void* tsan_fiber_ = nullptr;  // of sanitizer builds
  [[maybe_unused]] void* fake_stack_ = nullptr;
};

}  // namespace cpu_device::detail
