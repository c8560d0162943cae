#pragma once
/// @file A gate at which kernels wait while the host looks at the counts.

#include "tests/unit/costs/counts.hpp"

#include <gpusock/gpusock.hpp>

#include "cpu_device/launch.hpp"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace gpusock::costs {

class Gate {
 public:
  explicit Gate(unsigned kernels = 1) : kernels_(kernels) {}

  /// Called by one thread of each kernel: waits until the host opens.
  void pass() {
    const unsigned time = arrived_.fetch_add(1) / kernels_ + 1;
    for (const std::uint64_t start_ns = clock_ns(); opened_.load() < time;) cpu_device::relax(clock_ns() - start_ns);
  }
  /// Called by the host: waits until all kernels have arrived. What it does meanwhile is not counted.
  void await() {
    const Uncounted own;
    const unsigned all = (opened_.load() + 1) * kernels_;
    for (const Deadline until = patience(); arrived_.load() < all && !until.passed();) std::this_thread::yield();
    EXPECT_EQ(arrived_.load(), all);
  }
  void open() { opened_.fetch_add(1); }

 private:
  const unsigned kernels_;
  std::atomic<unsigned> arrived_{0}, opened_{0};
};

}  // namespace gpusock::costs
