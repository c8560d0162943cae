#pragma once
/// @file How far the host launches steps ahead of the device.

#include <cstdint>

namespace param_sync {

/// The steps that were launched since the host last waited for all of them. With 1,024 kernels in its queue a launch
/// waits, and on a GPU the launches of other nodes of the process may wait for it, for which those kernels wait.
class QueuedSteps {
 public:
  static constexpr std::uint64_t kStepsMax = 32;
  static constexpr std::uint64_t kLaunchesMax = 512;

  /// So many launches are the most that a step makes.
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
