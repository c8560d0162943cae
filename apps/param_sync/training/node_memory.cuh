#pragma once
/// @file The memory of a node's kernels. It is allocated before they run: a later allocation could wait for them.

#include "param_sync/store/float_memory.hpp"
#include "param_sync/wire/hash.hpp"
#include "plan/plan.hpp"
#include "report/report.hpp"
#include "training/state.cuh"

#include "gpusock/gpusock.hpp"

#include <vector>

namespace param_sync {

struct NodeMemory {
  std::uint32_t parameters;
  std::uint64_t versions;       ///< how many versions of the weights, and of the gradients, there are at a time
  std::uint64_t final_version;  ///< the version after the training
  FloatMemory weights;          ///< with a pool in host memory; then the others here are not used
  gpusock::DeviceBuffer<float> gradients, states;
  gpusock::Mapped<std::uint64_t> step_waited_ns;  ///< by step: how long its kernels waited for weights or factors
  gpusock::DeviceBuffer<std::uint64_t> failed;
  gpusock::Mapped<FailureRecord<Failure>> failure;
  gpusock::Mapped<std::uint64_t> stop;

  NodeMemory(gpusock::Context& context, const Config& config, const Plan& plan)
      : parameters(plan.layout.parameters()),
        versions(plan.sync.versions()),
        final_version(plan.sync.exchanges()),
        weights(context, parameters * versions, plan.pool.has_value()),
        gradients(context, plan.pool ? 1 : parameters * versions),
        states(context, plan.pool ? 1 : state_floats(plan.update, plan.layout.parameters())),
        step_waited_ns(context, plan.steps),
        failed(context, 1),
        failure(context, 1),
        stop(context, 1) {
    const std::vector<float> initial = initial_weights(plan.layout, config.seed);
    // With trees weights stay the initial ones until others have come that far down.
    const std::uint64_t copies = plan.sync.tree_depth == 0 ? 1 : versions;
    for (std::uint64_t version = 0; version < copies; ++version) weights.copy_in(initial, version * parameters);
  }

  /// Returns a state with the pointers to this memory. The caller fills in the other members.
  NodeState state() const {
    NodeState node;
    node.weights = weights.data();
    node.gradients = gradients.data();
    node.states = {states.data(), parameters};
    node.failed = failed.data();
    node.failure = failure.data();
    node.stop = stop.data();
    return node;
  }

  /// Where a version of the weights is, or the gradients that make the next one. It has the memory of an old one.
  float* weights_of(std::uint64_t version) const { return weights.data() + version % versions * parameters; }
  float* gradients_of(std::uint64_t version) const { return gradients.data() + version % versions * parameters; }

  std::vector<float> final_weights() const {
    std::vector<float> all(parameters);
    weights.copy_out(all, final_version % versions * parameters);
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
