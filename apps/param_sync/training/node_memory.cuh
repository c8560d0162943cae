#pragma once
/// @file What a node's kernels work on, allocated before any of them runs: allocating later could wait for them.

#include "param_sync/wire/hash.hpp"
#include "plan/plan.hpp"
#include "report/report.hpp"
#include "training/state.cuh"

#include "gpusock/gpusock.hpp"

#include <vector>

namespace param_sync {

struct NodeMemory {
  gpusock::DeviceBuffer<float> weights, gradients, states;
  gpusock::Mapped<std::uint64_t> step_waited_ns;  ///< by step: for how long its forward kernels waited for
                                                  ///< weights
  gpusock::DeviceBuffer<std::uint64_t> failed;
  gpusock::Mapped<FailureRecord<Failure>> failure;
  gpusock::Mapped<std::uint64_t> stop;

  NodeMemory(gpusock::Context& context, const Config& config, const Plan& plan)
      : weights(context, plan.layout.parameters()),
        gradients(context, plan.layout.parameters()),
        states(context, state_floats(plan.update, plan.layout.parameters())),
        step_waited_ns(context, plan.steps),
        failed(context, 1),
        failure(context, 1),
        stop(context, 1) {
    weights.copy_in(initial_weights(plan.layout, config.seed));
  }

  /// The pointers; the rest is the caller's to fill in.
  NodeState state() const {
    NodeState node;
    node.weights = weights.data();
    node.gradients = gradients.data();
    node.states = {states.data(), weights.size()};
    node.failed = failed.data();
    node.failure = failure.data();
    node.stop = stop.data();
    return node;
  }

  std::vector<float> final_weights() const {
    std::vector<float> all(weights.size());
    weights.copy_out(all);
    return all;
  }

  /// Waiting and the weights' hash, once all kernels have ended. The run began with step `first_step`.
  void collect(NodeReport& report, std::uint64_t first_step) const {
    report.step_waited_ns.assign(step_waited_ns.data() + first_step, step_waited_ns.data() + step_waited_ns.size());
    const std::vector<float> all = final_weights();
    report.weights_hash = fnv1a(all.data(), all.size() * sizeof(float));
  }
};

}  // namespace param_sync
