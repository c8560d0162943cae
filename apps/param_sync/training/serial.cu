#include "training/serial.hpp"

#include "param_sync/wire/hash.hpp"
#include "plan/plan.hpp"
#include "training/serial_store.cuh"

#include <chrono>
#include <memory>
#include <variant>

namespace param_sync {

SerialResult train_serially(const Config& config, const Dataset& data, const ProgressSink& progress,
                            const std::atomic<bool>& stop) {
  const Plan plan = Plan::make(config, data);
  SerialModel model(config, plan, data);
  const auto make = [&](const auto& clock) -> std::unique_ptr<SerialRun> {
    return std::make_unique<SerialStore<std::decay_t<decltype(clock)>>>(config, plan, model, clock);
  };
  const std::unique_ptr<SerialRun> run = std::visit(make, plan.sync.clock);
  SerialResult result;
  NodeReport& report = result.report;
  report.steps = plan.steps;
  report.layers.resize(plan.layout.layers.size());
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  const auto host_api_calls = [&] { return model.context.stats().host_api_calls; };
  const std::uint64_t calls_before = host_api_calls();
  for (std::uint64_t step = 0; step < plan.steps && !stop; ++step) {
    run->run_until(step + 1);
    model.stream.synchronize();
    report.losses.push_back(run->mean_loss(step));
    if ((step + 1) % plan.steps_per_epoch == 0) model.evaluate(run->newest(), report);
    if (progress) progress({step + 1, plan.steps, plan.steps_per_epoch, 0, report.losses.back(), seconds(), 0});
  }
  if (stop) throw Interrupted();
  report.train_s = seconds();
  report.host_api_calls = host_api_calls() - calls_before;
  result.weights = run->weights();
  report.weights_hash = fnv1a(result.weights.data(), result.weights.size() * sizeof(float));
  run->finish(report);
  return result;
}

}  // namespace param_sync
