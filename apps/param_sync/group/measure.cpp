#include "connected_group.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <span>

namespace param_sync {
namespace {

constexpr std::size_t kSizes = Measured::kSizes;
constexpr int kRepeats = 5;

/// The least seconds of some runs; the first one is not counted.
double least_s(executor::Executor& executor, GroupSchedule schedule, float* data, std::size_t count,
               std::uint64_t timeout_ns) {
  double least = 0;
  for (int repeat = -1; repeat < kRepeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    executor.wait(executor.start(schedule, data, count, timeout_ns));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (repeat <= 0 || seconds < least) least = seconds;
  }
  return least;
}

}  // namespace

std::size_t boundary_of(std::span<const std::size_t> sizes, std::span<const float> small_s,
                        std::span<const float> large_s) {
  std::size_t best = 0;
  double least_loss = 0;
  for (std::size_t boundary = 0; boundary <= sizes.size(); ++boundary) {
    double loss = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      loss += (i < boundary ? small_s[i] : large_s[i]) / std::min(small_s[i], large_s[i]);
    }
    if (boundary != 0 && loss >= least_loss) continue;
    least_loss = loss;
    best = boundary;
  }
  if (best == 0) return 0;
  return best == sizes.size() ? sizes.back() : (sizes[best - 1] + sizes[best]) / 2;
}

std::size_t Group::measure(std::uint64_t timeout_ns) {
  executor::Executor& executor = impl_->ready();
  if (!impl_->measured) {
    throw gpusock::Error(EINVAL, "measuring a group that has no choice: \"auto\" has one, where sums have any order");
  }
  auto& [data, seconds] = *impl_->measured;
  for (std::size_t i = 0; i < kSizes; ++i) {
    seconds[i] = static_cast<float>(least_s(executor, kSmall, data.data(), Measured::kFloats[i], timeout_ns));
    seconds[kSizes + i] = static_cast<float>(least_s(executor, kLarge, data.data(), Measured::kFloats[i], timeout_ns));
  }
  // All ranks choose by the same figures: those of all, as rank 0 has added them.
  executor.wait(executor.start(kSmall, seconds.data(), seconds.size(), timeout_ns));
  executor.wait(executor.start(kBroadcast, seconds.data(), seconds.size(), timeout_ns));
  const std::vector<float> all(seconds.data(), seconds.data() + seconds.size());
  const std::span<const float> times(all);
  impl_->small_floats_max = boundary_of(Measured::kFloats, times.first(kSizes), times.last(kSizes));
  return impl_->small_floats_max;
}

}  // namespace param_sync
