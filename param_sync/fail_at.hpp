#pragma once
/// @file Trials of programs that survive losses: a process ends in the middle of a kernel, where the program says. Link
/// gpusock::param_sync. fail_at.cuh has what kernels call.

#include "gpusock/gpusock.hpp"

#include <cstdint>
#include <thread>

namespace param_sync {

/// What kernels need to fail (fail_at.cuh). Kernels take it by value. It is valid as long as its FailPoint exists; the
/// default never fails.
struct FailHandle {
  std::uint64_t* reached = nullptr;  ///< mapped
  std::uint64_t step = 0;            ///< see FailPoint
  std::uint32_t phase = 0;           ///< see FailPoint
};

/// A point at which this process ends as if it were killed: by SIGKILL, without a word to other ranks.
///
///   const param_sync::FailPoint point(context, 57, kAfterPush);   // of one rank
///   ... param_sync::fail_at(block, handle, step, kAfterPush);     // in its kernel; handle is point.handle()
class FailPoint {
 public:
  /// The process ends when a kernel calls fail_at() with this step and phase, whose meaning is the program's. The
  /// context outlives the point. A thread of the host waits for that, and looks every millisecond.
  FailPoint(gpusock::Context& context, std::uint64_t step, std::uint32_t phase);

  /// What kernels take.
  FailHandle handle() { return {reached_.data(), step_, phase_}; }

 private:
  gpusock::Mapped<std::uint64_t> reached_;
  std::uint64_t step_;
  std::uint32_t phase_;
  std::jthread watching_;
};

}  // namespace param_sync
