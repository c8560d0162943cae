#pragma once
/// @file Runs one kernel to its end.

#include "cpu_device/cuda.hpp"
#include "cpu_device/launch.hpp"

#include <gtest/gtest.h>

#include <string>

namespace cpu_device::test {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized = __has_feature(thread_sanitizer) || __has_feature(address_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

/// Throws KernelFault where the kernel fails.
template <class... Parameters, class... Arguments>
void run(const LaunchShape& shape, void (*kernel)(Parameters...), Arguments&&... arguments) {
  Stream stream;
  launch(stream, shape, kernel, std::forward<Arguments>(arguments)...);
  stream.synchronize();
}

/// The fault that the kernel ends with; fails the test if it ends without one.
template <class... Parameters, class... Arguments>
KernelFault fault_of(const LaunchShape& shape, void (*kernel)(Parameters...), Arguments&&... arguments) {
  try {
    run(shape, kernel, std::forward<Arguments>(arguments)...);
  } catch (const KernelFault& fault) {
    return fault;
  }
  ADD_FAILURE() << "the kernel ended without a fault";
  return KernelFault("none", {}, {}, "no fault");
}

}  // namespace cpu_device::test
