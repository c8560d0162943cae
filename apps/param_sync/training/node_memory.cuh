#pragma once
/// @file The memory of a node's kernels. It is allocated before they run: a later allocation could wait for them.

#include "param_sync/wire/hash.hpp"
#include "plan/plan.hpp"
#include "report/report.hpp"
#include "training/state.cuh"

#include "gpusock/gpusock.hpp"

#include <vector>

namespace param_sync {

struct NodeMemory {
  gpusock::DeviceBuffer<float> weights, gradients, states;
  gpusock::Mapped<std::uint64_t> step_waited_ns;  ///< by step: how long its kernels waited for weights or factors
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

  /// Returns a state with the pointers to this memory. The caller fills in the other members.
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

  /// Adds the wait times and the weights' hash to the report, after all kernels have ended. `first_step`: of this run.
  void collect(NodeReport& report, std::uint64_t first_step) const {
    report.step_waited_ns.assign(step_waited_ns.data() + first_step, step_waited_ns.data() + step_waited_ns.size());
    const std::vector<float> all = final_weights();
    report.weights_hash = fnv1a(all.data(), all.size() * sizeof(float));
  }
};

}  // namespace param_sync
