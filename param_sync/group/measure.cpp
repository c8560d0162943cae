#include "param_sync/group/connected_group.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <span>

namespace param_sync {
namespace {

constexpr std::size_t kSizes = Measured::kSizes;
constexpr int kRepeats = 5;

/// The runs of a measurement share one timeout: each run has what is left of it.
class Runs {
 public:
  Runs(executor::Executor& executor, std::uint64_t timeout_ns)
      : executor_(executor), timeout_ns_(timeout_ns), start_ns_(gpusock::clock_ns()) {}

  void run(std::size_t schedule, float* data, std::size_t count) {
    const std::uint64_t spent_ns = gpusock::clock_ns() - start_ns_;
    const std::uint64_t left_ns = spent_ns < timeout_ns_ ? timeout_ns_ - spent_ns : 0;
    executor_.wait(executor_.start(schedule, data, count, left_ns));
  }

 private:
  executor::Executor& executor_;
  std::uint64_t timeout_ns_, start_ns_;
};

/// Returns the shortest of kRepeats runs in seconds. A run before them is not counted.
double least_s(Runs& runs, GroupSchedule schedule, float* data, std::size_t count) {
  double least = 0;
  for (int repeat = -1; repeat < kRepeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    runs.run(schedule, data, count);
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
  Runs runs(impl_->ready(), timeout_ns);
  if (!impl_->measured) {
    impl_->executor.give_up();  // a rank whose options leave a choice would wait for this rank
    throw gpusock::Error(EINVAL, "measuring a group that has no choice: \"auto\" has one, where sums have any order");
  }
  auto& [data, seconds] = *impl_->measured;
  for (std::size_t i = 0; i < kSizes; ++i) {
    seconds[i] = static_cast<float>(least_s(runs, kSmall, data.data(), Measured::kFloats[i]));
    seconds[kSizes + i] = static_cast<float>(least_s(runs, kLarge, data.data(), Measured::kFloats[i]));
  }
  // All ranks choose by the same times: the sums over all ranks, as rank 0 has them.
  runs.run(kSmall, seconds.data(), seconds.size());
  runs.run(kBroadcast, seconds.data(), seconds.size());
  const std::vector<float> all(seconds.data(), seconds.data() + seconds.size());
  const std::span<const float> times(all);
  impl_->small_floats_max = boundary_of(Measured::kFloats, times.first(kSizes), times.last(kSizes));
  return impl_->small_floats_max;
}

}  // namespace param_sync
