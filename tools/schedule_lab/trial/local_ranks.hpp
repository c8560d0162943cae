#pragma once
/// @file All ranks of a schedule in this process, each with a context of its own: for tests, `param_sync schedule
/// --run` and `param_sync bench`.

#include "param_sync/executor/executor.hpp"

#include <memory>
#include <span>
#include <vector>

namespace param_sync::executor {

class LocalRanks {
 public:
  /// Makes the ranks and connects them. Each has a tensor of `floats_max` floats. `settings.rank` is not used. Throws
  /// what Executor throws.
  LocalRanks(const std::vector<schedule::Schedule>& schedules, gpusock::LinkKind link, const Settings& settings,
             std::uint64_t floats_max);
  ~LocalRanks();

  int nodes() const { return static_cast<int>(ranks_.size()); }
  Executor& executor(int rank);
  gpusock::DeviceBuffer<float>& tensor(int rank);
  gpusock::Context& context(int rank);

  /// Starts a run on the first `count` floats of all tensors, and waits for all ranks. Throws gpusock::Error with what
  /// each rank that has failed says.
  void run(std::size_t index, std::uint64_t count, std::uint64_t timeout_ns = 30'000'000'000);

 private:
  struct Rank;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace param_sync::executor
