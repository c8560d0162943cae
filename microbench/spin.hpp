#pragma once
/// @file The wait of the rivals. They spin, to be as fast as the machine allows.

#include <gpusock/types.hpp>

#include <sched.h>

#include <atomic>

namespace bench {

/// A spinning wait with a deadline. It yields after a time, because its partner may have no processor to run on.
class Spin {
 public:
  /// If `stop_ns` is given, the wait also ends at that time. Another thread may change it.
  explicit Spin(std::uint64_t deadline_ns, const std::atomic<std::uint64_t>* stop_ns = nullptr)
      : deadline_ns_(deadline_ns), stop_ns_(stop_ns) {}

  /// Makes one turn. False if the deadline or `stop_ns` has passed.
  bool turn() {
    if (++turns_ % kTurnsPerLook != 0) return true;
    const std::uint64_t now_ns = gpusock::clock_ns();
    if (started_ns_ == 0) started_ns_ = now_ns;
    if (now_ns - started_ns_ > kYieldAfterNs) sched_yield();
    if (stop_ns_ != nullptr && now_ns >= stop_ns_->load(std::memory_order_relaxed)) return false;  // it guards no data
    return now_ns < deadline_ns_;
  }

 private:
  static constexpr std::uint64_t kTurnsPerLook = 64;
  static constexpr std::uint64_t kYieldAfterNs = 100'000;

  std::uint64_t deadline_ns_;
  const std::atomic<std::uint64_t>* stop_ns_;
  std::uint64_t turns_ = 0;
  std::uint64_t started_ns_ = 0;
};

}  // namespace bench
