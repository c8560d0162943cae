#include "trial/local_ranks.hpp"

#include <string>

namespace param_sync::executor {

struct LocalRanks::Rank {
  gpusock::Context context;
  Executor executor;
  gpusock::DeviceBuffer<float> tensor;

  Rank(const Settings& settings, const std::vector<schedule::Schedule>& schedules, std::uint64_t floats_max)
      : executor(context, settings, schedules), tensor(context, floats_max) {}
};

LocalRanks::LocalRanks(const std::vector<schedule::Schedule>& schedules, gpusock::LinkKind link,
                       const Settings& settings, std::uint64_t floats_max) {
  if (schedules.empty()) throw gpusock::Error(EINVAL, "ranks without a schedule");
  gpusock::Endpoint at = gpusock::Endpoint::parse("127.0.0.1:0");
  at.link = link;
  std::vector<gpusock::Endpoint> addresses;
  Settings own = settings;
  for (own.rank = 0; own.rank < schedules.front().nodes(); ++own.rank) {
    ranks_.push_back(std::make_unique<Rank>(own, schedules, floats_max));
    addresses.push_back(ranks_.back()->executor.listen(at));
  }
  for (const auto& rank : ranks_) rank->executor.begin_connect(addresses);
  for (const auto& rank : ranks_) rank->executor.await_connect();
}

LocalRanks::~LocalRanks() = default;

Executor& LocalRanks::executor(int rank) { return ranks_.at(static_cast<std::size_t>(rank))->executor; }
gpusock::DeviceBuffer<float>& LocalRanks::tensor(int rank) { return ranks_.at(static_cast<std::size_t>(rank))->tensor; }
gpusock::Context& LocalRanks::context(int rank) { return ranks_.at(static_cast<std::size_t>(rank))->context; }

void LocalRanks::run(std::size_t index, std::uint64_t count, std::uint64_t timeout_ns) {
  std::vector<std::uint64_t> runs;
  for (const auto& rank : ranks_) {
    runs.push_back(rank->executor.start(index, rank->tensor.data(), count, timeout_ns));
  }
  std::string problems;
  int error = 0;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    try {
      ranks_[rank]->executor.wait(runs[rank]);
    } catch (const gpusock::Error& failed) {
      if (error == 0) error = failed.code().value();
      problems += (problems.empty() ? "" : "\n") + std::string(failed.what());
    }
  }
  if (error != 0) throw gpusock::Error(error, problems);
}

}  // namespace param_sync::executor
