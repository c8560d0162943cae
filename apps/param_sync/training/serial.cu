#include "training/serial.hpp"

#include "arithmetic/averages.cuh"
#include "arithmetic/gradients.cuh"
#include "arithmetic/model.hpp"
#include "param_sync/wire/hash.hpp"
#include "plan/plan.hpp"

#include <chrono>
#include <type_traits>
#include <variant>

namespace param_sync {
namespace {

/// Sums the ranks' gradients of all parameters and applies them, with the same arithmetic as an owner.
template <class Update>
__global__ void apply_all(Update update, int nodes, std::uint32_t parameters, const float* gradients,
                          UpdateStates states, float* weights) {
  const auto gradient_of = [&](int rank) { return gradients + std::size_t{parameters} * rank; };
  apply_gradients(update, nodes, parameters, gradient_of, states, weights, blockIdx.x * blockDim.x + threadIdx.x,
                  gridDim.x * blockDim.x);
}

/// Takes the average of the weights that the ranks have trained apart, with the same arithmetic as a store.
__global__ void average_all(int nodes, std::uint32_t parameters, float* of_ranks, float* average) {
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < parameters; i += gridDim.x * blockDim.x) {
    const auto weight = [&](int rank) -> float& { return of_ranks[std::size_t{parameters} * rank + i]; };
    float change = part_of_change(weight(0), average[i], nodes);
    for (int rank = 1; rank < nodes; ++rank) change += part_of_change(weight(rank), average[i], nodes);
    average[i] += change;
    for (int rank = 0; rank < nodes; ++rank) weight(rank) = average[i];
  }
}

class SerialRun {
 public:
  SerialRun(const Config& config, const Dataset& data)
      : config_(config),
        plan_(Plan::make(config, data)),
        test_(context_, data.test, test_order(data)),
        activations_(context_, plan_.layout, plan_.batch),
        test_activations_(context_, plan_.layout, kEvaluationRows),
        weights_(context_, plan_.layout.parameters()),
        apart_(context_, copies() == 1 ? 1 : std::size_t{plan_.layout.parameters()} * config.nodes),
        states_(context_, state_floats(plan_.update, plan_.layout.parameters()) * static_cast<std::size_t>(copies())),
        gradients_(context_, std::size_t{plan_.layout.parameters()} * config.nodes),
        board_(context_, 1),
        losses_(context_, plan_.steps * config.nodes),
        score_(context_, 1) {
    // One copy of the images serves all ranks: their orders lie one after the other.
    std::vector<std::uint32_t> order;
    for (int rank = 0; rank < config.nodes; ++rank) {
      const auto part = training_order(config, data, rank);
      order.insert(order.end(), part.begin(), part.end());
    }
    training_ = std::make_unique<DeviceSamples>(context_, data.train, order);
    const std::vector<float> initial = initial_weights(plan_.layout, config.seed);
    weights_.copy_in(initial);
    if (copies() == 1) return;
    std::vector<float> all;
    all.reserve(apart_.size());
    for (int rank = 0; rank < copies(); ++rank) all.insert(all.end(), initial.begin(), initial.end());
    apart_.copy_in(all);
  }

  const Plan& plan() const { return plan_; }

  void launch_step(std::uint64_t step) {
    const std::uint32_t parameters = plan_.layout.parameters();
    for (int rank = 0; rank < config_.nodes; ++rank) gradients_of(rank, step);
    for (int copy = 0; copy < copies(); ++copy) {
      const std::size_t at = std::size_t{parameters} * copy;
      const auto apply = [&](const auto& update) {
        gpusock::launch(context_, model_.shape(16), apply_all<std::decay_t<decltype(update)>>, update,
                        config_.nodes / copies(), parameters, gradients_.data() + at,
                        UpdateStates{states_.data() + at * state_floats(plan_.update), parameters}, weights_of(copy));
      };
      std::visit(apply, plan_.update);
    }
    if (plan_.sync.local_steps != 0 && plan_.sync.exchanges_after(step, plan_.steps)) {
      gpusock::launch(context_, model_.shape(16), average_all, config_.nodes, parameters, weights_of(0),
                      weights_.data());
    }
  }

  void evaluate(NodeReport& report) {
    score_[0] = {};
    model_.evaluate(test_, weights_of(0), test_activations_, score_.data());
    stream_.synchronize();
    report.accuracies.push_back(static_cast<double>(score_[0].correct) / static_cast<double>(test_.visits()));
    report.test_loss = score_[0].loss / static_cast<double>(test_.visits());
  }

  void synchronize() { stream_.synchronize(); }
  std::uint64_t host_api_calls() const { return context_.stats().host_api_calls; }

  float mean_loss(std::uint64_t step) const {
    double sum = 0;
    for (int rank = 0; rank < config_.nodes; ++rank) sum += losses_[plan_.steps * rank + step];
    return static_cast<float>(sum / config_.nodes);
  }

  std::vector<float> weights() const {
    std::vector<float> all(weights_.size());
    weights_.copy_out(all);
    return all;
  }

 private:
  /// How many models there are: one, or one for each rank if ranks train apart.
  int copies() const { return plan_.sync.local_steps == 0 ? 1 : config_.nodes; }
  /// A rank's weights.
  float* weights_of(int rank) {
    return plan_.sync.local_steps == 0 ? weights_.data()
                                       : apart_.data() + std::size_t{plan_.layout.parameters()} * rank;
  }

  void gradients_of(int rank, std::uint64_t step) {
    const SamplesView samples = training_->from((plan_.steps * rank + step) * plan_.batch);
    float* losses = losses_.data() + plan_.steps * rank;
    float* gradients = gradients_.data() + std::size_t{plan_.layout.parameters()} * rank;
    model_.gather(samples, plan_.batch, activations_);
    for (int layer = 0; layer < plan_.layout.size(); ++layer) {
      model_.forward(layer, weights_of(rank), plan_.batch, activations_);
    }
    model_.loss(samples, plan_.batch, activations_, losses, board_.data(), step);
    for (int layer = plan_.layout.size() - 1; layer >= 0; --layer) {
      if (layer > 0) model_.backward_input(layer, weights_of(rank), plan_.batch, activations_);
      model_.backward_parameters(layer, plan_.batch, activations_, gradients);
    }
  }

  const Config& config_;
  Plan plan_;
  gpusock::Context context_;
  gpusock::Stream stream_{context_};
  Model model_{context_, stream_, plan_.layout};
  std::unique_ptr<DeviceSamples> training_;
  DeviceSamples test_;
  Activations activations_, test_activations_;
  gpusock::DeviceBuffer<float> weights_;  ///< if ranks train apart: the last average
  gpusock::DeviceBuffer<float> apart_;    ///< the ranks' own weights then
  gpusock::DeviceBuffer<float> states_, gradients_;
  gpusock::Mapped<StepBoard> board_;
  gpusock::Mapped<float> losses_;
  gpusock::Mapped<Score> score_;
};

}  // namespace

SerialResult train_serially(const Config& config, const Dataset& data, const ProgressSink& progress,
                            const std::atomic<bool>& stop) {
  SerialRun run(config, data);
  const Plan& plan = run.plan();
  SerialResult result;
  NodeReport& report = result.report;
  report.steps = plan.steps;
  report.layers.resize(plan.layout.layers.size());
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  const std::uint64_t calls_before = run.host_api_calls();
  for (std::uint64_t step = 0; step < plan.steps && !stop; ++step) {
    run.launch_step(step);
    run.synchronize();
    report.losses.push_back(run.mean_loss(step));
    if ((step + 1) % plan.steps_per_epoch == 0) run.evaluate(report);
    if (progress) progress({step + 1, plan.steps, plan.steps_per_epoch, 0, report.losses.back(), seconds(), 0});
  }
  if (stop) throw Interrupted();
  report.train_s = seconds();
  report.host_api_calls = run.host_api_calls() - calls_before;
  result.weights = run.weights();
  report.weights_hash = fnv1a(result.weights.data(), result.weights.size() * sizeof(float));
  return result;
}

}  // namespace param_sync
