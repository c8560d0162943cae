#pragma once
/// @file The model of --serial, and the samples of all ranks: one process computes what the ranks would.

#include "arithmetic/model.hpp"
#include "arithmetic/shared_numbers.hpp"
#include "plan/plan.hpp"
#include "report/report.hpp"

#include "gpusock/gpusock.hpp"

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

namespace param_sync {

class SerialModel {
 public:
  static constexpr unsigned kBlocks = 16;  ///< of a kernel over all parameters

  SerialModel(const Config& config, const Plan& plan, const Dataset& data)
      : plan_(plan),
        test_(context, data.test, test_order(data)),
        test_activations_(context, plan.layout, kEvaluationRows),
        board_(context, 1),
        losses_(context, plan.steps * static_cast<std::size_t>(config.nodes)),
        score_(context, 1) {
    const int at_once = shared_.empty() ? 1 : config.nodes;
    for (int i = 0; i < at_once; ++i) activations_.emplace_back(context, plan.layout, plan.batch);
    // One copy of the images serves all ranks: their orders lie one after the other.
    std::vector<std::uint32_t> order;
    for (int rank = 0; rank < config.nodes; ++rank) {
      const auto part = training_order(config, data, rank);
      order.insert(order.end(), part.begin(), part.end());
    }
    training_ = std::make_unique<DeviceSamples>(context, data.train, order);
  }

  /// Computes the gradients of a rank's step from the model's weights. If layers share numbers of all ranks, the first
  /// call of a step computes those of all ranks: all have the same weights, and gradients one after the other.
  void compute(int rank, std::uint64_t step, const float* weights, float* gradients) {
    if (shared_.empty()) return compute_ranks({rank}, step, weights, gradients);
    if (step < computed_) return;
    computed_ = step + 1;
    std::vector<int> all(static_cast<std::size_t>(plan_.layout.nodes));
    std::iota(all.begin(), all.end(), 0);
    compute_ranks(all, step, weights, gradients - static_cast<std::size_t>(rank) * plan_.layout.parameters());
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
  /// Computes a step of some ranks, layer by layer. `gradients`: of the first one; then come those of the next one.
  void compute_ranks(const std::vector<int>& ranks, std::uint64_t step, const float* weights, float* gradients) {
    const auto for_ranks = [&](const auto& call) {
      for (std::size_t i = 0; i < ranks.size(); ++i) call(ranks[i], activations_[i]);
    };
    for_ranks([&](int rank, Activations& own) { model_.gather(samples_of(rank, step), plan_.batch, own); });
    for (int layer = 0; layer < plan_.layout.size(); ++layer) {
      for_ranks([&](int rank, Activations& own) {
        if (shared_.has(layer)) model_.share_forward(layer, plan_.batch, own, shared_.forward(layer, rank));
      });
      for_ranks([&](int, Activations& own) { model_.forward(layer, weights, plan_.batch, own); });
    }
    for_ranks([&](int rank, Activations& own) {
      model_.loss(samples_of(rank, step), plan_.batch, own, plan_.rate_share(step),
                  losses_.data() + plan_.steps * static_cast<std::uint64_t>(rank), board_.data(), step);
    });
    for (int layer = plan_.layout.size() - 1; layer >= 0; --layer) {
      for_ranks([&](int rank, Activations& own) {
        if (shared_.has(layer)) model_.share_backward(layer, plan_.batch, own, shared_.backward(layer, rank));
      });
      for_ranks([&](int rank, Activations& own) {
        if (layer > 0) model_.backward_input(layer, weights, plan_.batch, own);
        const auto before = static_cast<std::size_t>(rank - ranks.front()) * plan_.layout.parameters();
        model_.backward_parameters(layer, weights, plan_.batch, own, gradients + before);
      });
    }
  }

  SamplesView samples_of(int rank, std::uint64_t step) const {
    return training_->from((plan_.steps * static_cast<std::uint64_t>(rank) + step) * plan_.batch);
  }

  const Plan& plan_;
  Layout layout_ = plan_.layout;
  SharedMemory shared_{context, layout_};
  Model model_{context, stream, layout_};
  std::unique_ptr<DeviceSamples> training_;
  DeviceSamples test_;
  std::vector<Activations> activations_;  ///< of ranks that compute together
  Activations test_activations_;
  std::uint64_t computed_ = 0;  ///< steps that were computed, if all ranks compute together
  gpusock::Mapped<StepBoard> board_;
  gpusock::Mapped<float> losses_;
  gpusock::Mapped<Score> score_;
};

}  // namespace param_sync
