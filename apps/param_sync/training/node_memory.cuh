#pragma once
/// @file What a node's kernels work on, allocated before any of them runs: allocating later could wait for them.

#include "layout/hash.hpp"
#include "plan/plan.hpp"
#include "report/report.hpp"
#include "report/stall.hpp"
#include "training/state.cuh"

#include "gpusock/gpusock.hpp"

#include <vector>

namespace param_sync {

struct NodeMemory {
  gpusock::DeviceBuffer<float> weights, gradients, velocity, staging;
  gpusock::DeviceBuffer<LayerCounters> counters;
  gpusock::DeviceBuffer<Timing> timing;
  gpusock::Mapped<std::uint64_t> step_waited_ns;  ///< by step: for how long its forward kernels waited for
                                                  ///< weights
  gpusock::DeviceBuffer<gpusock::Socket> push_sockets, serve_sockets;
  gpusock::DeviceBuffer<gpusock::Endpoint> endpoints;
  gpusock::DeviceBuffer<std::uint64_t> failed;
  gpusock::Mapped<Failure> failure;
  gpusock::Mapped<std::uint64_t> stop;
  gpusock::Mapped<StepProgressWords> step_progress;

  NodeMemory(gpusock::Context& context, const Config& config, const Plan& plan)
      : weights(context, plan.layout.parameters()),
        gradients(context, plan.layout.parameters()),
        velocity(context, plan.layout.parameters()),
        staging(context, std::size_t{plan.layout.parameters()} * config.nodes),
        counters(context, plan.layout.layers),
        timing(context, 1),
        step_waited_ns(context, plan.steps),
        push_sockets(context, config.nodes),
        serve_sockets(context, config.nodes),
        endpoints(context, config.nodes),
        failed(context, 1),
        failure(context, 1),
        stop(context, 1),
        step_progress(context, 1) {
    weights.copy_in(initial_weights(plan.layout, config.seed));
    const std::vector<gpusock::Socket> none(config.nodes, -1);
    push_sockets.copy_in(none);
    serve_sockets.copy_in(none);
  }

  /// The pointers; the rest is the caller's to fill in.
  NodeState state() const {
    NodeState node;
    node.weights = weights.data();
    node.gradients = gradients.data();
    node.velocity = velocity.data();
    node.staging = staging.data();
    node.counters = counters.data();
    node.timing = timing.data();
    node.push_sockets = push_sockets.data();
    node.serve_sockets = serve_sockets.data();
    node.failed = failed.data();
    node.failure = failure.data();
    node.stop = stop.data();
    node.step_progress = step_progress.data();
    return node;
  }

  /// How far this node is with the others; while kernels run.
  /// `first_part`: the first that kernels of this run have counted.
  StepProgress snapshot(int rank, int nodes, std::uint64_t first_part) const {
    StepProgress now;
    now.rank = rank;
    StepProgressWords& words = step_progress[0];
    for (int peer = 0; peer < nodes; ++peer) {
      now.gathered.push_back(first_part + published(words.gathered[peer]));
      now.pulled.push_back(first_part + published(words.pulled[peer]));
      now.pushing.push_back(2 * first_part + published(words.pushing[peer]));
    }
    return now;
  }

  std::vector<float> final_weights() const {
    std::vector<float> all(weights.size());
    weights.copy_out(all);
    return all;
  }

  /// Traffic, timing and the weights' hash, once all kernels have ended. The run began with step `first_step`.
  void collect(NodeReport& report, std::uint64_t first_step) const {
    std::vector<LayerCounters> counted(counters.size());
    counters.copy_out(counted);
    for (const LayerCounters& layer : counted) {
      report.layers.push_back({layer.pushed_bytes, layer.pulled_bytes, layer.gathered_bytes, layer.published_bytes});
    }
    Timing times{};
    timing.copy_out({&times, 1});
    report.communicating_ns = times.communicating_ns;
    report.step_waited_ns.assign(step_waited_ns.data() + first_step, step_waited_ns.data() + step_waited_ns.size());
    const std::vector<float> all = final_weights();
    report.weights_hash = fnv1a(all.data(), all.size() * sizeof(float));
  }
};

}  // namespace param_sync
