#include "trial/factor_trial.hpp"

#include "trial/local_ranks.hpp"
#include "param_sync/schedule/factors.hpp"
#include "param_sync/schedule/schemes.hpp"

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

constexpr int kServer = 0;  // the rank that makes the weights in adam-fc
constexpr int kBroadcastChunks = 32;
constexpr float kRate = 0.0625f;

/// Returns all ranks' factors, with values of about the size of errors and activations.
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

using Buffers = std::vector<std::unique_ptr<gpusock::DeviceBuffer<float>>>;

class Trials {
 public:
  explicit Trials(const FactorTrialSettings& settings)
      : settings_(settings),
        layout_(settings.layout),
        factors_(random_factors(layout_)),
        serves_(schedule::moves(settings.scheme, schedule::Moves::factors_to_owner)),
        of_factors_(schedule::moves_factors(settings.scheme) || schedule::prefers_factors(shape(), nodes())),
        schedules_(schedules()),
        ranks_(schedules_, settings.link, {}, layout_.gathered_floats()) {
    for (int rank = 0; rank < nodes(); ++rank) {
      for (Buffers* buffers : {&gradients_, &weights_, &dense_}) {
        buffers->push_back(
            std::make_unique<gpusock::DeviceBuffer<float>>(ranks_.context(rank), layout_.gradient_floats()));
      }
    }
    make_own_gradients();
  }

  FactorTrial run() {
    FactorTrial trial;
    trial.of_factors = of_factors_;
    trial.dense_floats = sent_floats(kDense, layout_.gradient_floats());
    trial.sent_floats = of_factors_ ? sent_floats(kFactors, layout_.gathered_floats()) : trial.dense_floats;
    if (serves_) trial.sent_floats = std::max(trial.sent_floats, sent_floats(kWeights, layout_.gradient_floats()));
    std::vector<double> exchanges, rebuilds, dense;
    for (int i = -1; i < settings_.repeats; ++i) {
      give_data();
      double exchange_s = 0, rebuild_s = 0;
      if (of_factors_) {
        exchange_s = seconds_of([&] { ranks_.run(kFactors, layout_.gathered_floats(), kTrialTimeoutNs); });
        rebuild_s = seconds_of([&] { rebuild(); });
      }
      if (serves_) exchange_s += seconds_of([&] { run_on(weights_, kWeights); });
      const double dense_s = seconds_of([&] { run_on(dense_, kDense); });
      if (!of_factors_) exchange_s = dense_s;
      if (i < 0) compare(trial);
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
  enum : std::size_t { kFactors, kDense, kWeights };  // indices in schedules_

  int nodes() const { return static_cast<int>(layout_.ranks); }
  schedule::FactorShape shape() const {
    return {static_cast<double>(layout_.rows), static_cast<double>(layout_.columns),
            static_cast<double>(layout_.samples)};
  }
  /// Returns the buffers with the results that all ranks have at the end.
  const Buffers& results() const { return serves_ ? weights_ : of_factors_ ? gradients_ : dense_; }

  std::vector<schedule::Schedule> schedules() const {
    schedule::Request request;
    request.nodes = nodes();
    const schedule::Schedule dense = schedule::generate(settings_.dense, request);
    if (!serves_) return {schedule::generate("sfb", request), dense};
    return {schedule::factor_gather(nodes(), nodes(), kServer), dense,
            schedule::owner_broadcast(nodes(), kBroadcastChunks, kServer)};
  }

  /// Returns the floats that the busiest rank sends by this schedule.
  std::uint64_t sent_floats(std::size_t index, std::uint64_t floats) const {
    const schedule::Schedule& made = schedules_[index];
    const Cut cut{floats, std::max<std::uint64_t>(floats, 1), static_cast<std::uint32_t>(made.chunks)};
    std::uint64_t most = 0;
    for (int rank = 0; rank < nodes(); ++rank) {
      const Program program = program_of(made, rank, channels_of(schedules_, rank));
      most = std::max(most, sent_in_step(program, cut, false).floats);
    }
    return most;
  }

  /// Makes each rank's gradient from its own factors. The all-reduce sums these gradients.
  void make_own_gradients() {
    const FactorLayout alone{layout_.rows, layout_.columns, layout_.samples, 1};
    for (int rank = 0; rank < nodes(); ++rank) {
      ranks_.tensor(rank).copy_in(factors_);
      rebuild_gradient(ranks_.context(rank), alone, ranks_.tensor(rank).data() + first_of(rank),
                       buffer(dense_, rank).data());
      ranks_.context(rank).synchronize();
      buffer(dense_, rank).copy_out(own_gradients_.emplace_back(layout_.gradient_floats()));
    }
  }
  std::ptrdiff_t first_of(int rank) const {
    return static_cast<std::ptrdiff_t>(static_cast<std::uint64_t>(rank) * layout_.floats_of_rank());
  }

  /// Gives each rank its own factors and gradient. Zeroes the room for other ranks' factors, and the weights.
  void give_data() {
    for (int rank = 0; rank < nodes(); ++rank) {
      std::vector<float> own(layout_.gathered_floats());
      std::copy_n(factors_.begin() + first_of(rank), layout_.floats_of_rank(), own.begin() + first_of(rank));
      ranks_.tensor(rank).copy_in(own);
      buffer(dense_, rank).copy_in(own_gradients_[static_cast<std::size_t>(rank)]);
      weights(rank).copy_in(std::vector<float>(layout_.gradient_floats()));
    }
  }

  static gpusock::DeviceBuffer<float>& buffer(const Buffers& buffers, int rank) {
    return *buffers[static_cast<std::size_t>(rank)];
  }
  gpusock::DeviceBuffer<float>& weights(int rank) { return buffer(weights_, rank); }

  void rebuild() {
    for (int rank = 0; rank < (serves_ ? 1 : nodes()); ++rank) {
      float* gradient = buffer(gradients_, rank).data();
      rebuild_gradient(ranks_.context(rank), layout_, ranks_.tensor(rank).data(), gradient);
      if (serves_) {
        descend(ranks_.context(rank), gradient, kRate, weights(rank).data(), layout_.gradient_floats());
      }
    }
    for (int rank = 0; rank < nodes(); ++rank) ranks_.context(rank).synchronize();
  }

  void run_on(const Buffers& buffers, std::size_t index) {
    std::vector<std::uint64_t> runs;
    for (int rank = 0; rank < nodes(); ++rank) {
      runs.push_back(
          ranks_.executor(rank).start(index, buffer(buffers, rank).data(), layout_.gradient_floats(), kTrialTimeoutNs));
    }
    for (int rank = 0; rank < nodes(); ++rank) ranks_.executor(rank).wait(runs[static_cast<std::size_t>(rank)]);
  }

  void compare(FactorTrial& trial) {
    std::vector<float> first(layout_.gradient_floats()), other(layout_.gradient_floats());
    buffer(results(), 0).copy_out(first);
    trial.same_everywhere = true;
    for (int rank = 1; rank < nodes(); ++rank) {
      buffer(results(), rank).copy_out(other);
      trial.same_everywhere = trial.same_everywhere &&
                              std::memcmp(first.data(), other.data(), first.size() * sizeof(float)) == 0;
    }
    const double scale = serves_ ? -static_cast<double>(kRate) : 1;
    double error = 0, size = 0;
    const std::uint32_t step = std::max<std::uint32_t>(1, layout_.rows / 256);  // of a large layer it compares only
                                                                                // every step-th row
    for (std::uint32_t row = 0; row < layout_.rows; row += step) {
      for (std::uint32_t column = 0; column < layout_.columns; ++column) {
        const auto [sum, terms] = exact(row, column);
        const double wanted = scale * sum;
        const double difference = static_cast<double>(first[std::uint64_t{row} * layout_.columns + column]) - wanted;
        error += difference * difference;
        size += wanted * wanted;
        if (terms > 0) trial.error_max = std::max(trial.error_max, std::fabs(difference / scale) / terms);
      }
    }
    trial.error = size > 0 ? std::sqrt(error / size) : std::sqrt(error);
    // A weight is the sum of one term per sample, of either sign: after n terms its size is about the root of n, and an
    // addition rounds by at most half a unit of that. The n roundings add up as the terms do, so their norm is at most
    // the root of n half units of the sum. The factor 2 is for the roundings of the terms and of the rate.
    const double terms = static_cast<double>(layout_.samples) * layout_.ranks;
    trial.error_allowed = 2 * (std::sqrt(terms) + 2) * 0x1p-24;
  }

  /// Returns the sum of a weight's terms, and the sum of their sizes.
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
  bool serves_;      // true for adam-fc
  bool of_factors_;  // false: the whole gradient is sent
  std::vector<schedule::Schedule> schedules_;
  LocalRanks ranks_;
  Buffers gradients_, weights_, dense_;            // dense_: gradients for the all-reduce
  std::vector<std::vector<float>> own_gradients_;  // by rank
};

}  // namespace

const std::vector<std::string>& factor_trial_schemes() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = schedule::factor_scheme_names();
    all.emplace_back("hybrid");
    return all;
  }();
  return names;
}

FactorTrial try_factors(const FactorTrialSettings& settings) {
  const auto& names = factor_trial_schemes();
  if (std::find(names.begin(), names.end(), settings.scheme) == names.end()) {
    throw schedule::Error("factors are not exchanged by " + settings.scheme);
  }
  return Trials(settings).run();
}

}  // namespace param_sync::executor
