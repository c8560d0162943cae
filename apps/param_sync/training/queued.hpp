#pragma once
/// @file How far the host launches steps ahead of the device.

#include <cstdint>

namespace param_sync {

/// The steps that were launched since the host last waited for all of them. A launch waits if 1,024 kernels are queued.
/// On a GPU other nodes' launches in this process may wait for it, and the queued kernels for those: a deadlock.
class QueuedSteps {
 public:
  static constexpr std::uint64_t kStepsMax = 32;
  static constexpr std::uint64_t kLaunchesMax = 512;

  /// Sets the largest number of launches that a step makes.
  void expect(std::uint64_t launches_each) { launches_each_ = launches_each; }
  void add() { ++steps_; }
  void clear() { steps_ = 0; }
  /// True if the host should wait before it launches another one.
  bool full() const { return steps_ >= kStepsMax || (steps_ + 1) * launches_each_ > kLaunchesMax; }

 private:
  std::uint64_t launches_each_ = 0;
  std::uint64_t steps_ = 0;
};

}  // namespace param_sync
