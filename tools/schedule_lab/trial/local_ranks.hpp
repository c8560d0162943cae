#pragma once
/// @file Runs all ranks of a schedule in this process, each with its own context: for tests, `param_sync schedule
/// --run`, `param_sync bench` and measurements of links.

#include "param_sync/executor/executor.hpp"

#include <memory>
#include <span>
#include <vector>

namespace param_sync::executor {

class LocalRanks {
 public:
  /// Makes the ranks and connects them. Each has a tensor of `floats_max` floats. Ignores `settings.rank`. Throws what
  /// Executor throws, and gpusock::Error (EINVAL) if there is no schedule.
  LocalRanks(const std::vector<schedule::Schedule>& schedules, gpusock::LinkKind link, const Settings& settings,
             std::uint64_t floats_max);
  ~LocalRanks();

  int nodes() const { return static_cast<int>(ranks_.size()); }
  Executor& executor(int rank);
  gpusock::DeviceBuffer<float>& tensor(int rank);
  gpusock::Context& context(int rank);

  /// Runs schedule `index` on the first `count` floats of all tensors, and waits for all ranks. If ranks fail, throws
  /// gpusock::Error with the message of each of them.
  void run(std::size_t index, std::uint64_t count, std::uint64_t timeout_ns = 30'000'000'000);

 private:
  struct Rank;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace param_sync::executor
