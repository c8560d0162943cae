#pragma once
/// @file The model of --serial, and the samples of all ranks: one process computes what the ranks would.

#include "arithmetic/model.hpp"
#include "plan/plan.hpp"
#include "report/report.hpp"

#include "gpusock/gpusock.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace param_sync {

class SerialModel {
 public:
  static constexpr unsigned kBlocks = 16;  ///< of a kernel over all parameters

  SerialModel(const Config& config, const Plan& plan, const Dataset& data)
      : plan_(plan),
        test_(context, data.test, test_order(data)),
        activations_(context, plan.layout, plan.batch),
        test_activations_(context, plan.layout, kEvaluationRows),
        board_(context, 1),
        losses_(context, plan.steps * static_cast<std::size_t>(config.nodes)),
        score_(context, 1) {
    // One copy of the images serves all ranks: their orders lie one after the other.
    std::vector<std::uint32_t> order;
    for (int rank = 0; rank < config.nodes; ++rank) {
      const auto part = training_order(config, data, rank);
      order.insert(order.end(), part.begin(), part.end());
    }
    training_ = std::make_unique<DeviceSamples>(context, data.train, order);
  }

  /// Computes the gradients of a rank's step from the model's weights.
  void compute(int rank, std::uint64_t step, const float* weights, float* gradients) {
    const std::uint64_t of_rank = plan_.steps * static_cast<std::uint64_t>(rank);
    const SamplesView samples = training_->from((of_rank + step) * plan_.batch);
    model_.gather(samples, plan_.batch, activations_);
    for (int layer = 0; layer < plan_.layout.size(); ++layer) {
      model_.forward(layer, weights, plan_.batch, activations_);
    }
    model_.loss(samples, plan_.batch, activations_, plan_.rate_share(step), losses_.data() + of_rank, board_.data(),
                step);
    for (int layer = plan_.layout.size() - 1; layer >= 0; --layer) {
      if (layer > 0) model_.backward_input(layer, weights, plan_.batch, activations_);
      model_.backward_parameters(layer, plan_.batch, activations_, gradients);
    }
  }

  /// Launches a kernel over all parameters.
  template <class... Parameters, class... Arguments>
  void launch(void (*kernel)(Parameters...), const Arguments&... arguments) {
    gpusock::launch(context, model_.shape(kBlocks), kernel, arguments...);
  }

  /// Adds the weights' accuracy on the test set to the report.
  void evaluate(const float* weights, NodeReport& report) {
    score_[0] = {};
    model_.evaluate(test_, weights, test_activations_, score_.data());
    stream.synchronize();
    report.accuracies.push_back(static_cast<double>(score_[0].correct) / static_cast<double>(test_.visits()));
    report.test_loss = score_[0].loss / static_cast<double>(test_.visits());
  }

  /// The loss of a rank's step, after the stream was synchronized.
  float loss(int rank, std::uint64_t step) const {
    return losses_[plan_.steps * static_cast<std::size_t>(rank) + step];
  }

  gpusock::Context context;
  gpusock::Stream stream{context};

 private:
  const Plan& plan_;
  Model model_{context, stream, plan_.layout};
  std::unique_ptr<DeviceSamples> training_;
  DeviceSamples test_;
  Activations activations_, test_activations_;
  gpusock::Mapped<StepBoard> board_;
  gpusock::Mapped<float> losses_;
  gpusock::Mapped<Score> score_;
};

}  // namespace param_sync
