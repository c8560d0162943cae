// Data and model parallel in one run: ranks have all weights of a network's first and last layer, each with samples of
// its own, and a part of the layer between, which is large. Activations and errors of that layer are exchanged instead
// of its gradients (Chilimbi et al., "Project Adam", OSDI 2014; Krizhevsky, "One weird trick for parallelizing
// convolutional neural networks", 2014). The weights at the end are those of a run in which no layer is split, bit for
// bit: all sums are made in parts, one for each rank, and the parts are added in the order of ranks.
//
// All of it is one kernel of each rank. What ranks exchange are sums that the kernel starts (resident.cuh): where a
// rank has a part of an array, the rest of its array is 0.
#include "examples/device_memory.hpp"
#include "examples/rank_threads.hpp"
#include "examples/split_layer/training.cuh"

#include "program/arguments.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"

#include "gpusock/gpusock.hpp"

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace {

using examples::in_device;
using namespace split_layer;

/// A rank, whose kernel runs in this process.
class Rank {
 public:
  Rank(const Options& options, int rank)
      : options_(options), problem_(options), group_(context_, rank, options.ranks, {.deterministic = true}) {
    address = group_.listen(gpusock::Endpoint::parse("127.0.0.1:0"));
    const auto number = static_cast<std::uint32_t>(rank), ranks = static_cast<std::uint32_t>(options.ranks);
    const std::uint32_t width = options.width, part = width / ranks;
    job_.rank = number;
    job_.ranks = ranks;
    job_.width = width;
    job_.batch = options.batch;
    job_.steps = options.steps;
    job_.rate = options.learning_rate;
    job_.by_columns = options.split == "columns";
    job_.by_rows = options.split == "rows";
    job_.rows = job_.by_rows ? part : width;
    job_.row = job_.by_rows ? part * number : 0;
    job_.columns = job_.by_columns ? part : width;
    job_.column = job_.by_columns ? part * number : 0;
  }

  void run(const std::vector<gpusock::Endpoint>& addresses) {
    group_.connect(addresses);
    std::vector<float> own;
    for (std::uint32_t row = job_.row; row < job_.row + job_.rows; ++row) {
      const auto begin = problem_.middle.begin() + std::ptrdiff_t{row} * job_.width + job_.column;
      own.insert(own.end(), begin, begin + job_.columns);
    }
    middle_.emplace(in_device(context_, own));
    const std::size_t of_samples = std::size_t{job_.batch} * job_.ranks * job_.width;
    const std::size_t of_ends = std::size_t{job_.width} * (kInputs + kClasses) + 1;
    const bool is_split = job_.by_columns || job_.by_rows;
    gpusock::DeviceBuffer<float> below(context_, of_samples), sum(context_, of_samples), error(context_, of_samples),
        error_below(context_, of_samples), gradients(context_, of_ends + own.size());
    const std::size_t exchanged = of_ends + (is_split ? 0 : own.size());  // its own part's gradient stays with a rank
    param_sync::ResidentSums sums(group_, {{.data = below.data(), .count = below.size()},
                                           {.data = sum.data(), .count = sum.size()},
                                           {.data = error.data(), .count = error.size()},
                                           {.data = error_below.data(), .count = error_below.size()},
                                           {.data = gradients.data(), .count = exchanged}});
    job_.sums = sums.start();
    job_.samples = samples_.data();
    job_.labels = labels_.data();
    job_.first = first_.data();
    job_.middle = middle_->data();
    job_.last = last_.data();
    job_.below = below.data();
    job_.sum = sum.data();
    job_.error = error.data();
    job_.error_below = error_below.data();
    job_.first_gradient = gradients.data();
    job_.last_gradient = job_.first_gradient + std::size_t{kInputs} * job_.width;
    job_.loss = job_.last_gradient + std::size_t{job_.width} * kClasses;
    job_.middle_gradient = job_.loss + 1;
    job_.losses = losses_.data();
    job_.failed = failed_.data();
    const std::uint64_t before = sent_bytes();
    gpusock::launch(context_, {.block = options_.threads, .stream = &stream_}, train, job_);
    stream_.synchronize();
    sums.check();
    if (failed_[0] != 0) throw gpusock::Error(-failed_[0], "cannot exchange what ranks have computed");
    sent = sent_bytes() - before;
    group_.wait(group_.barrier());
  }

  /// Puts this rank's weights into those of all layers.
  void collect(std::vector<float>& weights) const {
    const std::size_t ends = problem_.first.size() + problem_.last.size();
    weights.resize(ends + problem_.middle.size());
    const auto copy = [](const gpusock::DeviceBuffer<float>& from, float* to) { from.copy_out({to, from.size()}); };
    copy(first_, weights.data());
    copy(last_, weights.data() + problem_.first.size());
    std::vector<float> own(middle_->size());
    middle_->copy_out(own);
    for (std::size_t i = 0; i < own.size(); ++i) {
      weights[ends + (job_.row + i / job_.columns) * job_.width + job_.column + i % job_.columns] = own[i];
    }
  }

  float loss(int which) const { return losses_[static_cast<std::size_t>(which)]; }
  std::size_t own_weights() const { return middle_->size(); }

  gpusock::Endpoint address;
  std::uint64_t sent = 0;  ///< bytes, by all steps

 private:
  std::uint64_t sent_bytes() const {
    std::uint64_t sum = 0;
    for (const auto& link : context_.stats().traffic) sum += link.tx_bytes;
    return sum;
  }

  const Options& options_;
  Problem problem_;
  Job job_;
  gpusock::Context context_;
  gpusock::Stream stream_{context_};
  gpusock::DeviceBuffer<float> samples_ = in_device(context_, problem_.samples);
  gpusock::DeviceBuffer<std::uint32_t> labels_ = in_device(context_, problem_.labels);
  gpusock::DeviceBuffer<float> first_ = in_device(context_, problem_.first);
  gpusock::DeviceBuffer<float> last_ = in_device(context_, problem_.last);
  std::optional<gpusock::DeviceBuffer<float>> middle_;
  gpusock::Mapped<float> losses_{context_, 2};
  gpusock::Mapped<int> failed_{context_, 1};
  param_sync::Group group_;
};

/// What a run leaves.
struct Outcome {
  std::vector<float> weights;
  float first_loss = 0, last_loss = 0;
  std::size_t own_weights = 0;
  std::uint64_t sent = 0;  ///< bytes, by all ranks and steps
};

Outcome train_on_ranks(const Options& options) {
  const auto ranks = examples::run_ranks<Rank>("split_layer", options);
  Outcome all;
  for (const auto& rank : ranks) {
    rank->collect(all.weights);
    all.sent += rank->sent;
  }
  all.first_loss = ranks[0]->loss(0);
  all.last_loss = ranks[0]->loss(1);
  all.own_weights = ranks[0]->own_weights();
  return all;
}

int run(const Options& options) {
  Options whole = options;
  whole.split = "none";
  const Outcome unsplit = train_on_ranks(whole), split = train_on_ranks(options);
  if (!std::isfinite(split.last_loss)) {
    throw gpusock::Error(
        EDOM, "the loss is no number after " + std::to_string(options.steps) + " steps: take a smaller --lr");
  }
  char text[500];
  std::snprintf(text, sizeof text,
                "split by %s: %d ranks, each with %zu of %u weights of the layer\n"
                "loss %.4f, after %u steps %.4f; %s the weights of a layer that is not split\n"
                "ranks send %llu bytes in a step; %llu if the layer is not split\n",
                options.split.c_str(), options.ranks, split.own_weights, options.width * options.width,
                split.first_loss, options.steps, split.last_loss, split.weights == unsplit.weights ? "exactly" : "not",
                static_cast<unsigned long long>(split.sent / options.steps),
                static_cast<unsigned long long>(unsplit.sent / options.steps));
  gpusock::program::print(text);
  return gpusock::program::kSuccess;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  gpusock::program::Arguments arguments(
      "Trains a network whose large layer is split among ranks, while each has samples of its own.");
  arguments.number("--ranks", options.ranks, "Threads of this process, each with a context", 1, 16);
  arguments.number("--threads", options.threads, "Of each rank's block", 1u, 256u);
  arguments.choice("--split", options.split, {"columns", "rows", "none"}, "What of the layer's weights a rank has");
  arguments.number("--width", options.width, "Inputs and outputs of the layer", 1u, 4096u);
  arguments.number("--batch", options.batch, "Samples of a rank in a step", 1u, 1024u);
  arguments.number("--steps", options.steps, "How many", 1u, 100'000u);
  arguments.number("--lr", options.learning_rate, "Learning rate", 1e-9F, 10.0F);
  arguments.number("--seed", options.seed, "Of samples and first weights", std::uint64_t{0}, ~std::uint64_t{0});
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&]() -> std::string {
    if (options.width % static_cast<unsigned>(options.ranks) == 0) return "";
    return "--width " + std::to_string(options.width) + " is no multiple of --ranks " + std::to_string(options.ranks) +
           ": each rank has an equal part of the layer";
  });
  arguments.check([&] {
    const std::uint64_t samples = std::uint64_t{options.steps} * options.batch * static_cast<unsigned>(options.ranks);
    return gpusock::program::problem_of_memory(samples * kInputs * sizeof(float) * static_cast<unsigned>(options.ranks),
                                               "--steps x --batch");
  });
  if (const auto status = arguments.parse(argc, argv)) return *status;
  return gpusock::program::run("split_layer", [&] { return run(options); });
}
