#include "training/serial.hpp"

#include "param_sync/wire/hash.hpp"
#include "plan/plan.hpp"
#include "training/serial_store.cuh"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <variant>

namespace param_sync {
namespace {

/// Trains until a node is lost, or to the end. A loss changes the plan: so each part of a training has one of its own.
class SerialPart {
 public:
  SerialPart(const Config& config, const Dataset& data, const SerialBegin& begin, int nodes_before)
      : config_(config),
        of_data_(sync_of(config.sync).of_groups(config)),
        plan_(Plan::make(of_data_, data)),
        model_(of_data_, plan_, data),
        begin_(begin) {
    begin_.step = plan_.step_after(begin.step, nodes_before);
    const auto make = [&](const auto& clock) -> std::unique_ptr<SerialRun> {
      return std::make_unique<SerialStore<std::decay_t<decltype(clock)>>>(config_, plan_, model_, clock, begin_);
    };
    run_ = std::visit(make, plan_.sync.clock);
  }

  /// Throws gpusock::Error (EINVAL) if this part does not come to a step.
  void check_step(std::uint64_t step) const {
    if (step >= begin_.step && step <= plan_.steps) return;
    throw gpusock::Error::with_cause(EINVAL, "--lost " + std::to_string(step) +
                                                 ": the nodes that are there then make steps " +
                                                 std::to_string(begin_.step) + " to " + std::to_string(plan_.steps));
  }

  /// Trains until step `until`, or to the end if that comes first.
  NodeReport train(std::uint64_t until, const ProgressSink& progress, const std::atomic<bool>& stop) {
    NodeReport report;
    report.first_step = begin_.step;
    report.steps = plan_.steps - begin_.step;
    report.layers.resize(plan_.layout.layers.size());
    const auto start = std::chrono::steady_clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    const auto host_api_calls = [&] { return model_.context.stats().host_api_calls; };
    const std::uint64_t calls_before = host_api_calls();
    for (std::uint64_t step = begin_.step; step < std::min(until, plan_.steps); ++step) {
      if (stop) throw Interrupted();
      run_->run_until(step + 1);
      model_.stream.synchronize();
      report.losses.push_back(run_->mean_loss(step));
      if ((step + 1) % plan_.steps_per_epoch == 0) model_.evaluate(run_->newest(), report);
      if (!progress) continue;
      progress({step + 1, plan_.steps, plan_.steps_per_epoch, begin_.step, report.losses.back(), seconds(), 0});
    }
    if (stop) throw Interrupted();
    report.train_s = seconds();
    report.host_api_calls = host_api_calls() - calls_before;
    return report;
  }

  SerialBegin end() const { return run_->end(); }

  SerialResult finish(NodeReport report) const {
    SerialResult result{std::move(report), run_->weights()};
    result.report.weights_hash = fnv1a(result.weights.data(), result.weights.size() * sizeof(float));
    run_->finish(result.report);
    return result;
  }

 private:
  const Config config_;
  const Config of_data_;  ///< those settings for nodes that have samples of their own
  const Plan plan_;
  SerialModel model_;
  SerialBegin begin_;
  std::unique_ptr<SerialRun> run_;
};

}  // namespace

SerialResult train_serially(const Config& config, const Dataset& data, const ProgressSink& progress,
                            const std::atomic<bool>& stop) {
  Config left = config;
  SerialBegin begin;
  std::vector<LostNode> lost;
  int nodes_before = config.nodes;
  for (auto loss = config.lost_after.begin();;) {
    SerialPart part(left, data, begin, nodes_before);
    const bool is_last = loss == config.lost_after.end();
    if (!is_last) part.check_step(*loss);
    NodeReport report = part.train(is_last ? ~std::uint64_t{0} : *loss, progress, stop);
    report.lost = lost;
    if (is_last) return part.finish(std::move(report));
    begin = part.end();
    nodes_before = left.nodes;
    const auto others = std::find_if(loss, config.lost_after.end(),
                                     [&](std::uint64_t after) { return after != *loss; });
    left.nodes -= static_cast<int>(others - loss);
    for (; loss != others; ++loss) lost.push_back({-1, begin.step, left.nodes});
  }
}

}  // namespace param_sync
