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
    const std::string option = config_.lost_after.empty() ? "--nodes-after" : "--lost";
    throw gpusock::Error::with_cause(EINVAL, option + " " + std::to_string(step) +
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
    // As nodes do that go on after the last step.
    if (begin_.step == plan_.steps && until > plan_.steps) model_.evaluate(run_->newest(), report);
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

/// --lost as --nodes-after: nodes that are lost after the same step are one change.
std::vector<NodesAfter> changes_of(const Config& config) {
  if (config.lost_after.empty()) return config.nodes_after;
  std::vector<NodesAfter> changes;
  int nodes = config.nodes;
  for (const std::uint64_t step : config.lost_after) {
    if (changes.empty() || changes.back().step != step) changes.push_back({step, nodes});
    changes.back().nodes = --nodes;
  }
  return changes;
}

/// Adds a change to those that a report has.
void note_change(NodeCounters& counters, int nodes_before, const NodesAfter& change) {
  for (int nodes = nodes_before; nodes > change.nodes; --nodes) {
    counters.lost.push_back({-1, change.step, change.nodes});
  }
  for (int nodes = nodes_before; nodes < change.nodes; ++nodes) {
    counters.joined.push_back({-1, change.step, change.nodes});
  }
  counters.nodes_after.push_back(change);
}

}  // namespace

SerialResult train_serially(const Config& config, const Dataset& data, const ProgressSink& progress,
                            const std::atomic<bool>& stop) {
  Config there = config;
  SerialBegin begin;
  NodeReport changed;
  int nodes_before = config.nodes;
  for (const NodesAfter& change : changes_of(config)) {
    SerialPart part(there, data, begin, nodes_before);
    part.check_step(change.step);
    part.train(change.step, progress, stop);
    begin = part.end();
    nodes_before = there.nodes;
    there.nodes = change.nodes;
    note_change(changed, nodes_before, change);
  }
  SerialPart part(there, data, begin, nodes_before);
  NodeReport report = part.train(~std::uint64_t{0}, progress, stop);
  report.lost = changed.lost;
  report.joined = changed.joined;
  report.nodes_after = changed.nodes_after;
  return part.finish(std::move(report));
}

}  // namespace param_sync
