#include "plan.hpp"

#include "gpusock/gpusock.hpp"

#include <numeric>
#include <string>

namespace param_sync {

std::vector<std::uint32_t> layer_widths(const Config& config, const Dataset& data) {
  std::vector<std::uint32_t> widths{data.train.pixels};
  widths.insert(widths.end(), config.hidden.begin(), config.hidden.end());
  widths.push_back(data.classes);
  return widths;
}

Plan Plan::make(const Config& config, const Dataset& data) {
  Plan plan;
  plan.layout = make_layout(layer_widths(config, data), config.nodes);
  plan.batch = config.batch;
  plan.steps_per_epoch = data.train.count() / plan.samples_per_step();
  plan.steps = plan.steps_per_epoch * config.epochs;
  if (plan.steps_per_epoch == 0) {
    throw gpusock::Error(EINVAL, "one step takes " + std::to_string(plan.samples_per_step()) +
                                     " samples (--nodes times --batch), but there are " +
                                     std::to_string(data.train.count()) + ": lower --batch or raise --limit");
  }
  plan.optimizer = {config.learning_rate, config.momentum, 1.0f / static_cast<float>(plan.samples_per_step())};
  return plan;
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
