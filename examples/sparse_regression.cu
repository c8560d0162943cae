// Logistic regression with an L1 norm, whose weights are mostly 0, through a parameter server: ranks keep samples of
// their own, push gradients when they have them, and push no gradient that would leave a weight at 0 (the KKT filter of
// Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014).
//
// A sample has a label, 1 or -1, and some features. The loss is the mean of log(1 + exp(-label * (weights . features)))
// over all samples, plus l1 times the sum of the weights' absolute values.
#include "examples/clock_option.hpp"
#include "examples/device_memory.hpp"
#include "examples/sparse_samples.hpp"
#include "examples/rank_threads.hpp"

#include "program/arguments.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"

#include "param_sync/push_chosen.cuh"
#include "param_sync/store.cuh"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using examples::in_device;

struct Options {
  int ranks = 4;
  std::string file, written, json_file;  // the first two have samples
  sparse_samples::Shape shape;
  libsvm::Samples samples;  // of all ranks
  int steps = 300;
  double l1 = 0.0005, rate = 200, filter = 0.7;
  std::string clock = "bsp";
};

/// Lists in device memory, for kernels.
struct View {
  const std::uint32_t* begin;
  const std::uint32_t* entries;
  const float* values;
};

struct DeviceLists {
  DeviceLists(gpusock::Context& context, const libsvm::Lists& lists)
      : begin(in_device(context, lists.begin)),
        entries(in_device(context, lists.entries)),
        values(in_device(context, lists.values)) {}
  View view() const { return {begin.data(), entries.data(), values.data()}; }
  gpusock::DeviceBuffer<std::uint32_t> begin, entries;
  gpusock::DeviceBuffer<float> values;
};

/// What a rank's kernel has, by value. Pointers point to device memory.
struct Job {
  param_sync::StoreHandle store;
  View by_sample, by_feature;
  const float* labels = nullptr;
  std::uint32_t samples = 0, samples_of_all = 0;
  std::uint32_t ranges = 0, features = 0;  ///< features of a range
  float filtered = 0;                      ///< a weight of 0 has no push of a gradient up to this size
  int steps = 0;
  float *weights = nullptr, *gradients = nullptr, *factors = nullptr;
  float* history = nullptr;  ///< the weights that each step has pulled; null: they are not kept
  std::uint32_t* rows = nullptr;
  std::uint64_t* count = nullptr;  ///< mapped: gradients that were pushed
  int* error = nullptr;            ///< mapped
};

/// The derivative of this rank's part of the loss, by a weight.
__device__ float gradient_of(const Job& job, std::uint32_t feature) {
  float gradient = 0;
  for (std::uint32_t k = job.by_feature.begin[feature]; k < job.by_feature.begin[feature + 1]; ++k) {
    gradient += job.factors[job.by_feature.entries[k]] * job.by_feature.values[k];
  }
  const float weight = job.weights[feature];
  if (weight == 0) return fabsf(gradient) <= job.filtered ? 0 : gradient;
  return gradient != 0 ? gradient : FLT_MIN;  // so that it is pushed: with ssp and async an owner then takes the norm
}

__global__ void descend(Job job) {
  const auto block = gpusock::this_block();
  int error = 0;
  std::uint64_t count = 0;
  for (int step = 0; step <= job.steps && error == 0; ++step) {
    for (std::uint32_t range = 0; range < job.ranges && error == 0; ++range) {
      error = param_sync::pull(block, job.store, range, job.weights + range * job.features);
    }
    for (std::uint32_t i = threadIdx.x; job.history != nullptr && i < job.ranges * job.features; i += blockDim.x) {
      job.history[std::size_t{job.ranges} * job.features * static_cast<unsigned>(step) + i] = job.weights[i];
    }
    if (step == job.steps) break;  // the last weights
    for (std::uint32_t i = threadIdx.x; i < job.samples; i += blockDim.x) {
      float product = 0;
      for (std::uint32_t k = job.by_sample.begin[i]; k < job.by_sample.begin[i + 1]; ++k) {
        product += job.weights[job.by_sample.entries[k]] * job.by_sample.values[k];
      }
      const float label = job.labels[i];
      job.factors[i] = -label / (1 + expf(label * product)) / static_cast<float>(job.samples_of_all);
    }
    block.sync();
    for (std::uint32_t range = 0; range < job.ranges && error == 0; ++range) {
      for (std::uint32_t i = threadIdx.x; i < job.features; i += blockDim.x) {
        job.gradients[i] = gradient_of(job, range * job.features + i);
        count += job.gradients[i] != 0 ? 1 : 0;
      }
      block.sync();
      error = param_sync::push_nonzero(block, job.store, range, job.gradients, job.rows);
    }
  }
  job.count[threadIdx.x] = count;
  if (threadIdx.x == 0) *job.error = error;
}

constexpr unsigned kThreads = 32;

/// A rank, whose kernel runs in this process.
class Rank {
 public:
  Rank(const Options& options, int rank)
      : options_(options),
        own_(sparse_samples::part_of(options.samples, static_cast<std::size_t>(rank),
                                     static_cast<std::size_t>(options.ranks))),
        by_sample_(context_, own_.lists),
        by_feature_(context_, sparse_samples::by_feature(own_.lists, features())),
        labels_(in_device(context_, own_.labels)),
        weights_(context_, features()),
        gradients_(context_, features()),
        factors_(in_device(context_, own_.labels)),  // as many as samples
        rows_(context_, features()),
        history_(context_, rank > 0 || options.json_file.empty() ? 0 : features() * (std::size_t{1} + options.steps)),
        group_(context_, rank, options.ranks) {
    address = group_.listen(gpusock::Endpoint::parse("127.0.0.1:0"));
    param_sync::StoreOptions of_store;
    of_store.clock = param_sync::clock_of(options.clock);
    of_store.update = param_sync::Update::proximal(static_cast<float>(options.rate), static_cast<float>(options.l1));
    of_store.rows_max = of_range();
    const std::vector<std::vector<float>> zero(static_cast<std::size_t>(options.ranks), std::vector<float>(of_range()));
    store_ = std::make_unique<param_sync::Store>(group_, zero, of_store);
  }

  void run(const std::vector<gpusock::Endpoint>& addresses) {
    group_.connect(addresses);
    Job job;
    job.store = store_->start();
    job.by_sample = by_sample_.view();
    job.by_feature = by_feature_.view();
    job.labels = labels_.data();
    job.samples = static_cast<std::uint32_t>(own_.labels.size());
    job.samples_of_all = static_cast<std::uint32_t>(options_.samples.labels.size());
    job.ranges = static_cast<std::uint32_t>(options_.ranks);
    job.features = of_range();
    // If all ranks keep theirs, the sum is less than l1, and the weight stays 0.
    job.filtered = static_cast<float>(options_.filter * options_.l1 / options_.ranks);
    job.steps = options_.steps;
    job.weights = weights_.data();
    job.gradients = gradients_.data();
    job.factors = factors_.data();
    job.rows = rows_.data();
    job.history = history_.size() > 0 ? history_.data() : nullptr;
    job.count = count_.data();
    job.error = error_.data();
    gpusock::launch(context_, {.block = kThreads, .stream = &stream_}, descend, job);
    stream_.synchronize();
    store_->check();
    group_.wait(group_.barrier());
    store_->stop();
  }

  std::vector<float> weights() const {
    std::vector<float> all(features());
    weights_.copy_out(all);
    all.resize(options_.samples.features);
    return all;
  }
  /// The objective with the weights that this rank has pulled in each step, as a JSON list.
  std::string objectives() const {
    std::vector<float> all(history_.size());
    history_.copy_out(all);
    std::string text;
    for (std::size_t at = 0; at < all.size(); at += features()) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(at);
      const std::vector<float> weights(begin, begin + options_.samples.features);
      char number[40];
      std::snprintf(number, sizeof number, "%s%.9g", at == 0 ? "" : ", ",
                    sparse_samples::objective(options_.samples, weights, options_.l1));
      text += number;
    }
    return '[' + text + ']';
  }
  std::uint64_t pushed_gradients() const {
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < kThreads; ++i) sum += count_[i];
    return sum;
  }
  std::uint64_t pushed_bytes() const {
    std::uint64_t sum = 0;
    for (const param_sync::StoreTraffic& range : store_->traffic()) sum += range.pushed_bytes;
    return sum;
  }

  gpusock::Endpoint address;

 private:
  /// Features are divided evenly among as many ranges as there are ranks.
  std::uint32_t of_range() const {
    const auto ranks = static_cast<std::uint32_t>(options_.ranks);
    return (options_.samples.features + ranks - 1) / ranks;
  }
  std::uint32_t features() const { return of_range() * static_cast<std::uint32_t>(options_.ranks); }

  const Options& options_;
  libsvm::Samples own_;
  gpusock::Context context_;
  gpusock::Stream stream_{context_};
  DeviceLists by_sample_, by_feature_;
  gpusock::DeviceBuffer<float> labels_, weights_, gradients_, factors_;
  gpusock::DeviceBuffer<std::uint32_t> rows_;
  gpusock::DeviceBuffer<float> history_;
  gpusock::Mapped<std::uint64_t> count_{context_, kThreads};
  gpusock::Mapped<int> error_{context_, 1};
  param_sync::Group group_;
  std::unique_ptr<param_sync::Store> store_;
};

int train(Options& options) {
  std::optional<gpusock::program::JsonOutput> json;  // opened first: what cannot be written is told at once
  if (!options.json_file.empty()) json.emplace(options.json_file);
  options.samples = options.file.empty() ? sparse_samples::make(options.shape) : libsvm::read(options.file);
  if (!options.written.empty()) gpusock::program::write_file(options.written, libsvm::text_of(options.samples));
  const std::vector<std::unique_ptr<Rank>> ranks = examples::run_ranks<Rank>("sparse_regression", options);
  std::uint64_t gradients = 0, bytes = 0;
  for (const auto& rank : ranks) gradients += rank->pushed_gradients(), bytes += rank->pushed_bytes();
  const std::vector<float> weights = ranks[0]->weights();
  const double reached = sparse_samples::objective(options.samples, weights, options.l1);
  if (!(reached < std::log(2) + 1e-6))
    throw std::runtime_error("the loss grows: take a smaller --lr");  // log(2): of zeros
  if (json) {
    json->write("{\"objectives\": " + ranks[0]->objectives() + "}\n");
    json->close();
  }
  const double all = static_cast<double>(weights.size()) * options.steps * options.ranks;
  char text[200];
  std::snprintf(
      text, sizeof text,
      "objective %.6f, %d of %d weights are not 0\npushed %.2f %% of all gradients, %.2f %% of the bytes\n", reached,
      static_cast<int>(std::count_if(weights.begin(), weights.end(), [](float weight) { return weight != 0; })),
      static_cast<int>(weights.size()), 100 * static_cast<double>(gradients) / all,
      100 * static_cast<double>(bytes) / (all * sizeof(float)));
  gpusock::program::print(text);
  return gpusock::program::kSuccess;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  gpusock::program::Arguments arguments(
      "Logistic regression whose weights are mostly 0, through a parameter server (docs/stores.md).");
  arguments.number("--ranks", options.ranks, "Threads of this process, each with a context", 1, 16);
  arguments.text("--data", options.file, "A file of samples, as LIBSVM reads them, instead of random ones");
  arguments.text("--write", options.written, "Writes the samples to this file, for --data");
  arguments.number("--samples", options.shape.samples, "Random ones, of all ranks", 16u, 1u << 24);
  arguments.number("--features", options.shape.features, "Of which a twentieth matter", 16u, libsvm::kFeaturesMax);
  arguments.number("--seed", options.shape.seed, "Of the samples", std::uint64_t{0}, ~std::uint64_t{0});
  arguments.number("--steps", options.steps, "Of each rank", 1, 1 << 20);
  arguments.number("--l1", options.l1, "Weight of the L1 norm", 0.0, 1e3);
  arguments.number("--lr", options.rate, "Learning rate", 1e-6, 1e6);
  arguments.number("--filter", options.filter,
                   "A weight of 0 has no push of gradients up to so many times l1 / ranks; 0: all are pushed", 0.0,
                   1.0);
  arguments.json(options.json_file, "The objective with the weights that the first rank reads in each step");
  examples::take_clock(arguments, options.clock, "weights");
  arguments.check([&] {
    const bool is_random = options.file.empty() || options.shape == sparse_samples::Shape();
    return std::string(is_random ? "" : "--samples, --features and --seed do not go with --data");
  });
  arguments.check(gpusock::program::problem_of_environment);
  if (const auto status = arguments.parse(argc, argv)) return *status;
  return gpusock::program::run("sparse_regression", [&] { return train(options); });
}
