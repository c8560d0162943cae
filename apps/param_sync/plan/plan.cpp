#include "plan/plan.hpp"

#include "plan/exchange_plan.hpp"
#include "plan/outer.hpp"

#include "gpusock/gpusock.hpp"

#include <algorithm>
#include <numeric>
#include <string>

namespace param_sync {

namespace {

std::vector<AnyLayer> uncut_layers_of(const Config& config, const SampleShape& sample) {
  if (config.model == kLenet) {
    return lenet(sample.rows, sample.columns, sample.classes, config.batch_norm != kNoBatchNorm,
                 config.batch_norm == kBatchNormAll);
  }
  std::vector<std::uint32_t> widths{sample.pixels()};
  widths.insert(widths.end(), config.hidden.begin(), config.hidden.end());
  widths.push_back(sample.classes);
  return perceptron(widths);
}

}  // namespace

std::vector<AnyLayer> layers_of(const Config& config, const SampleShape& sample) {
  std::vector<AnyLayer> layers = uncut_layers_of(config, sample);
  for (AnyLayer& layer : layers) {
    if (Dense* const dense = std::get_if<Dense>(&layer)) dense->band_bytes = config.tile_bytes;
  }
  return layers;
}

Layout layout_of(const Config& config, const SampleShape& sample, int nodes) {
  if (config.model == kLenet && std::min(sample.rows, sample.columns) < kLenetPixelsMin) {
    throw gpusock::Error(EINVAL, "--model lenet takes images of at least " + std::to_string(kLenetPixelsMin) + " x " +
                                     std::to_string(kLenetPixelsMin) + " pixels; these have " +
                                     std::to_string(sample.rows) + " x " + std::to_string(sample.columns) +
                                     ": take other data, or --model mlp");
  }
  Layout layout = make_layout(layers_of(config, sample), nodes);
  layout.border = config.model == kLenet ? kLenetBorder : 0;
  return layout;
}

Plan Plan::make(const Config& config, const DatasetShape& data) {
  Plan plan;
  plan.layout = layout_of(config, data.sample, config.nodes);
  plan.batch = config.batch;
  plan.steps_per_epoch = data.samples / plan.samples_per_step();
  plan.steps = plan.steps_per_epoch * config.epochs;
  if (plan.steps_per_epoch == 0) {
    throw gpusock::Error(EINVAL, "one step takes " + std::to_string(plan.samples_per_step()) +
                                     " samples (--nodes times --batch), but there are " + std::to_string(data.samples) +
                                     ": take fewer nodes, lower --batch" +
                                     (config.limit != 0 ? " or raise --limit" : " or take more data"));
  }
  plan.warmup_steps = config.warmup_steps;
  if (plan.warmup_steps > plan.steps) {
    throw gpusock::Error(EINVAL, "--warmup " + std::to_string(plan.warmup_steps) + ": the training has only " +
                                     std::to_string(plan.steps) + " steps, so it would end before the learning rate " +
                                     "is that of --lr");
  }
  plan.sync = sync_of(config.sync).of_run(config.nodes, plan.layout.size(), config.seed, plan.steps);
  const std::uint64_t samples = plan.sync.local_steps == 0 ? plan.samples_per_step() : plan.batch;
  const float of_nodes = config.elastic_lr_nodes == 0
                             ? 1.0f
                             : static_cast<float>(config.nodes) / static_cast<float>(config.elastic_lr_nodes);
  plan.update = update_of({config.learning_rate * of_nodes, config.momentum, 1.0f / static_cast<float>(samples)});
  plan.owners = plan.sync.local_steps == 0 ? std::get<Sgd>(plan.update) : outer_of(config.outer);
  plan.correction = {config.stale_lr, config.delay_compensation};
  plan.codec = store_codec_of(config.codec);
  plan.codec.keeps_others = config.error_feedback;
  if (config.device_pool_bytes != 0) plan.pool = PoolPlan::make(plan.layout, config.device_pool_bytes);
  return plan;
}

std::string problem_of_plan(const Config& config) {
  DatasetShape data;
  try {
    data = read_dataset_shape(config.data, config.limit);
  } catch (const gpusock::Error&) {
    return "";  // the caller that loads the file reports the error
  }
  try {
    const Plan plan = Plan::make(config, data);
    if (config.budget_bytes != 0) make_exchange_plan(config, plan.layout);
    const std::uint64_t events = history_events(config, plan);
    if (events > kHistoryEventsMax) {
      return "--history would keep " + std::to_string(events) + " pushes and pulls on each node, at most " +
             std::to_string(kHistoryEventsMax) + " are possible: lower --epochs or --limit";
    }
  } catch (const gpusock::Error& error) {
    const std::string text = error.what(), errno_text = ": " + gpusock::describe_errno(error.code().value());
    return text.ends_with(errno_text) ? text.substr(0, text.size() - errno_text.size()) : text;
  }
  return "";
}

std::uint64_t history_events(const Config& config, const Plan& plan) {
  constexpr std::uint64_t kLastPulls = 64;  // of a range, until its weights contain all ranks' pushes
  if (config.history_file.empty()) return 0;
  const std::uint64_t ranges = plan.layout.layers.size() * static_cast<std::uint64_t>(config.nodes);
  return ranges * (2 * plan.sync.exchanges() + kLastPulls);
}

int connections_between_nodes(const Config& config) {
  try {
    const Plan plan = Plan::make(config, read_dataset_shape(config.data, config.limit));
    return connections_between(make_exchange_plan(config, plan.layout), config.nodes);
  } catch (const gpusock::Error&) {
    return 0;  // the nodes report it
  }
}

std::vector<std::uint32_t> training_order(const Config& config, const Dataset& data, int rank) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t epoch = 0; epoch < config.epochs; ++epoch) {
    const auto part = visiting_order(data.train.count(), config.seed, epoch, rank, config.nodes, config.batch);
    order.insert(order.end(), part.begin(), part.end());
  }
  return order;
}

std::vector<std::uint32_t> test_order(const Dataset& data) {
  std::vector<std::uint32_t> order(data.test.count());
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

}  // namespace param_sync
