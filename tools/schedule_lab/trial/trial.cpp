#include "trial/trial.hpp"

#include "trial/local_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>

namespace param_sync::executor {
namespace {

using schedule::Range;
using schedule::Result;

/// Returns the data with which each rank begins.
std::vector<std::vector<float>> inputs_of(int nodes, std::uint64_t floats) {
  std::vector<std::vector<float>> all;
  for (int rank = 0; rank < nodes; ++rank) {
    std::minstd_rand random(static_cast<unsigned>(rank) + 1);
    std::vector<float> input(floats);
    for (float& value : input) value = static_cast<float>(static_cast<int>(random() % 2'000'001) - 1'000'000) / 7919.0f;
    all.push_back(std::move(input));
  }
  return all;
}

/// Returns the chunks whose results a worker has at the end.
Range chunks_at_end(const schedule::Schedule& schedule, int worker) {
  const Range all{0, schedule.chunks};
  if (schedule.result == Result::gather && worker != schedule.root) return {};
  return schedule.result == Result::reduce_scatter ? schedule::part_of(all, worker, schedule.workers) : all;
}

class Comparison {
 public:
  Comparison(const schedule::Schedule& schedule, const std::vector<std::vector<float>>& inputs)
      : schedule_(schedule), inputs_(inputs), cut_{inputs[0].size(), 1, static_cast<std::uint32_t>(schedule.chunks)} {}

  /// Compares what a worker has. Throws gpusock::Error if it is wrong.
  void look_at(int worker, const std::vector<float>& got) {
    const Range chunks = chunks_at_end(schedule_, worker);
    for (int chunk = chunks.begin; chunk < chunks.end; ++chunk) {
      const std::uint64_t end = cut_.chunk_begin(static_cast<std::uint32_t>(chunk) + 1);
      for (std::uint64_t i = cut_.chunk_begin(static_cast<std::uint32_t>(chunk)); i < end; ++i) {
        look_at(worker, chunk, i, got[i]);
      }
    }
  }
  double error_max() const { return error_max_; }
  bool in_rank_order() const { return in_rank_order_; }

 private:
  /// Returns the rank whose data a copied chunk is.
  int source_of(int chunk) const {
    if (schedule_.result == Result::broadcast) return schedule_.root;
    int rank = 0;
    while (schedule::part_of({0, schedule_.chunks}, rank, schedule_.workers).end <= chunk) ++rank;
    return rank;
  }

  void look_at(int worker, int chunk, std::uint64_t i, float got) {
    const bool copied = schedule::is_copied(schedule_.result);
    const int begin = copied ? source_of(chunk) : 0, end = copied ? begin + 1 : schedule_.workers;
    double sum = 0, size = 0;
    float ordered = 0;
    for (int rank = begin; rank < end; ++rank) {
      const float value = inputs_[static_cast<std::size_t>(rank)][i];
      sum += static_cast<double>(value);
      size += std::fabs(static_cast<double>(value));
      ordered = rank == begin ? value : ordered + value;
    }
    const double error = size == 0 ? std::fabs(static_cast<double>(got)) : std::fabs(got - sum) / size;
    error_max_ = std::max(error_max_, error);
    in_rank_order_ = in_rank_order_ && std::memcmp(&got, &ordered, sizeof got) == 0;
    // Each addition rounds by at most half a unit.
    if (!(error <= (end - begin - 1) * 0x1p-24)) {
      throw gpusock::Error(EIO, fmt::format("{}: worker {} has {} in float {} of {}, not {}", schedule_.scheme, worker,
                                            got, i, inputs_[0].size(), sum));
    }
  }

  const schedule::Schedule& schedule_;
  const std::vector<std::vector<float>>& inputs_;
  Cut cut_;
  double error_max_ = 0;
  bool in_rank_order_ = true;
};

double run_once(LocalRanks& ranks, const std::vector<std::vector<float>>& inputs) {
  for (int rank = 0; rank < ranks.nodes(); ++rank) {
    ranks.tensor(rank).copy_in(inputs[static_cast<std::size_t>(rank)]);
  }
  const auto start = std::chrono::steady_clock::now();
  ranks.run(0, inputs[0].size());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Returns how many runs come before the timed ones. With parameter servers of equal shares a run moves one share
/// through each ring.
int untimed_runs(int nodes, const TrialSettings& settings) {
  constexpr std::uint64_t kRunsMax = 64;
  if (!settings.fills_rings) return 1;
  const std::uint64_t share = std::max<std::uint64_t>(
      1, settings.floats * sizeof(float) / static_cast<std::uint64_t>(nodes));
  return static_cast<int>(std::min(kRunsMax, 1 + Settings().ring_bytes / share));
}

}  // namespace

Trial try_out(const schedule::Schedule& schedule, const TrialSettings& settings) {
  LocalRanks ranks({schedule}, settings.link, {}, settings.floats);
  const auto inputs = inputs_of(schedule.nodes(), settings.floats);
  for (int i = untimed_runs(schedule.nodes(), settings); i > 0; --i) run_once(ranks, inputs);
  Trial trial;
  for (int i = 0; i < settings.repeats; ++i) trial.seconds.push_back(run_once(ranks, inputs));
  std::sort(trial.seconds.begin(), trial.seconds.end());
  Comparison comparison(schedule, inputs);
  std::vector<float> got(settings.floats);
  for (int worker = 0; worker < schedule.workers; ++worker) {
    ranks.tensor(worker).copy_out(got);
    comparison.look_at(worker, got);
  }
  trial.error_max = comparison.error_max();
  trial.in_rank_order = comparison.in_rank_order();
  return trial;
}

}  // namespace param_sync::executor
