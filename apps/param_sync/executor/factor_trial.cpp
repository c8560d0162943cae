#include "executor/factor_trial.hpp"

#include "executor/local_ranks.hpp"
#include "schedule/schemes.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace param_sync::executor {
namespace {

constexpr std::uint64_t kTrialTimeoutNs = 60'000'000'000;

/// All ranks' factors, about as large as errors and activations are.
std::vector<float> random_factors(const FactorLayout& layout) {
  std::minstd_rand random(1);
  std::vector<float> all(layout.gathered_floats());
  for (float& value : all) value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 997.0f;
  return all;
}

template <class Work>
double seconds_of(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Trials {
 public:
  explicit Trials(const FactorTrialSettings& settings)
      : settings_(settings),
        layout_(settings.layout),
        factors_(random_factors(layout_)),
        ranks_(schedules(), settings.link, {}, std::max(layout_.gathered_floats(), layout_.gradient_floats())) {
    for (int rank = 0; rank < ranks_.nodes(); ++rank) {
      gradients_.push_back(
          std::make_unique<gpusock::DeviceBuffer<float>>(ranks_.context(rank), layout_.gradient_floats()));
    }
  }

  FactorTrial run() {
    FactorTrial trial;
    std::vector<double> exchanges, rebuilds, dense;
    for (int i = -1; i < settings_.repeats; ++i) {
      for (int rank = 0; rank < ranks_.nodes(); ++rank) give_factors(rank);
      const double exchange_s = seconds_of([&] { ranks_.run(kFactors, layout_.gathered_floats(), kTrialTimeoutNs); });
      const double rebuild_s = seconds_of([&] { rebuild_all(); });
      if (i < 0) compare(trial);
      const double dense_s = seconds_of([&] { ranks_.run(kDense, layout_.gradient_floats(), kTrialTimeoutNs); });
      if (i < 0) continue;
      exchanges.push_back(exchange_s);
      rebuilds.push_back(rebuild_s);
      dense.push_back(dense_s);
    }
    trial.exchange_s = median_of(exchanges);
    trial.rebuild_s = median_of(rebuilds);
    trial.dense_s = median_of(dense);
    return trial;
  }

 private:
  enum : std::size_t { kFactors, kDense };  // places in the list of schedules

  std::vector<schedule::Schedule> schedules() const {
    schedule::Request request;
    request.nodes = static_cast<int>(layout_.ranks);
    return {schedule::generate("sfb", request), schedule::generate(settings_.dense, request)};
  }

  /// Its own ones; those of others are to come.
  void give_factors(int rank) {
    std::vector<float> own(layout_.gathered_floats());
    const auto begin = static_cast<std::ptrdiff_t>(static_cast<std::uint64_t>(rank) * layout_.floats_of_rank());
    std::copy_n(factors_.begin() + begin, layout_.floats_of_rank(), own.begin() + begin);
    ranks_.tensor(rank).copy_in(own);
  }

  void rebuild_all() {
    for (int rank = 0; rank < ranks_.nodes(); ++rank) {
      rebuild_gradient(ranks_.context(rank), layout_, ranks_.tensor(rank).data(),
                       gradients_[static_cast<std::size_t>(rank)]->data());
    }
    for (int rank = 0; rank < ranks_.nodes(); ++rank) ranks_.context(rank).synchronize();
  }

  void compare(FactorTrial& trial) {
    std::vector<float> first(layout_.gradient_floats()), other(layout_.gradient_floats());
    gradients_[0]->copy_out(first);
    trial.same_everywhere = true;
    for (std::size_t rank = 1; rank < gradients_.size(); ++rank) {
      gradients_[rank]->copy_out(other);
      trial.same_everywhere = trial.same_everywhere &&
                              std::memcmp(first.data(), other.data(), first.size() * sizeof(float)) == 0;
    }
    double error = 0, size = 0;
    const std::uint32_t step = std::max<std::uint32_t>(1, layout_.rows / 256);  // of a large layer some rows
    for (std::uint32_t row = 0; row < layout_.rows; row += step) {
      for (std::uint32_t column = 0; column < layout_.columns; ++column) {
        const auto [sum, terms] = exact(row, column);
        const double difference = static_cast<double>(first[std::uint64_t{row} * layout_.columns + column]) - sum;
        error += difference * difference;
        size += sum * sum;
        if (terms > 0) trial.error_max = std::max(trial.error_max, std::fabs(difference) / terms);
      }
    }
    trial.error = size > 0 ? std::sqrt(error / size) : std::sqrt(error);
  }

  /// The sum of a weight's terms, and of their sizes.
  std::pair<double, double> exact(std::uint32_t row, std::uint32_t column) const {
    double sum = 0, terms = 0;
    for (std::uint32_t rank = 0; rank < layout_.ranks; ++rank) {
      for (std::uint32_t sample = 0; sample < layout_.samples; ++sample) {
        const double term = static_cast<double>(factors_[layout_.u_begin(rank, sample) + row]) *
                            static_cast<double>(factors_[layout_.v_begin(rank, sample) + column]);
        sum += term;
        terms += std::fabs(term);
      }
    }
    return {sum, terms};
  }

  const FactorTrialSettings& settings_;
  FactorLayout layout_;
  std::vector<float> factors_;
  LocalRanks ranks_;
  std::vector<std::unique_ptr<gpusock::DeviceBuffer<float>>> gradients_;
};

}  // namespace

FactorTrial try_factors(const FactorTrialSettings& settings) { return Trials(settings).run(); }

}  // namespace param_sync::executor
