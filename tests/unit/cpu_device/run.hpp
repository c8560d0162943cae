#pragma once
/// @file Runs one kernel to its end.

#include "cpu_device/cuda.hpp"
#include "cpu_device/launch.hpp"
#include "tests/support/sanitized.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <string>

namespace cpu_device::test {

using gpusock::kSanitized;
using gpusock::kThreadSanitized;

/// How a kernel's thread waits.
enum class Spin { relax, nanosleep, atomics };

/// How many threads this process has.
inline std::size_t os_threads() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

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
