// What the host launches: the kernels of a step.
#include "training/exchange.cuh"
#include "training/scheme_node.cuh"
#include "training/step.cuh"
#include "training/trace.cuh"

namespace param_sync {

/// Returns where the times of a step are written; null if the step is not traced.
std::uint64_t* SchemeNode::marks_of(std::uint64_t step) {
  const std::size_t each = marks_of_step(plan.layout.size(), plan.layout.size());
  return clock_of(step) < traced_steps ? marks.data() + clock_of(step) * each : nullptr;
}

void SchemeNode::launch_step(std::uint64_t step) {
  const NodeState node = state();
  const int layers = plan.layout.size();
  const std::uint64_t clock = clock_of(step);
  const SamplesView samples = training.from(step * plan.batch);
  std::uint64_t* next_mark = marks_of(step);
  const bool traced = next_mark != nullptr;
  const auto mark = [&] {
    if (traced) gpusock::launch(context, model.shape(1), mark_time, next_mark++);
  };
  model.gather(samples, plan.batch, activations);
  mark();
  for (int layer = 0; layer < layers; ++layer) {
    std::uint64_t* waited_ns = memory.step_waited_ns.data() + step;
    if (traced) {
      gpusock::launch(context, model.shape(1), wait_for_exchange, node, exchange_plan.bucket_of(layer), clock,
                      waited_ns);
    }
    mark();
    if (shared.has(layer)) {
      model.share_forward(layer, plan.batch, activations, shared.forward(layer, config.rank));
      share(exchange_plan.shared_forward_of(layer), step);
    }
    with_layer(layer, exchange_plan.bucket_of(layer), [&]<class Kind>(const NodeLayer<Kind>& at) {
      gpusock::launch(context, model.shape(at.kind.forward_blocks(plan.batch)), forward_when_ready<Kind>, node, at,
                      clock, activations.input(layer), plan.batch, activations.output(layer), waited_ns);
    });
    mark();
  }
  model.loss(samples, plan.batch, activations, plan.rate_share(step), losses.data(), board.data(), step,
             step_times_ns.data());
  mark();
  for (int layer = layers - 1; layer >= 0; --layer) {
    if (shared.has(layer)) {
      model.share_backward(layer, plan.batch, activations, shared.backward(layer, config.rank));
      share(exchange_plan.shared_backward_of(layer), step);
    }
    // The last kernel that reads the layer's weights comes before its gradients are handed over: from then on, lanes
    // write new weights (L9).
    if (layer > 0) model.backward_input(layer, memory.weights.data(), plan.batch, activations);
    launch_backward(layer, step);
    mark();
  }
  if (!config.overlap) {
    gpusock::launch(context, model.shape(1), hand_over_all, node, computed.data(), static_cast<int>(computed.size()));
  }
  launch_factors(step, mark);
}

/// Hands over this node's numbers, and waits for those of all nodes. The lanes have sent those of the step before: this
/// node has waited for them.
void SchemeNode::share(int exchange_of_numbers, std::uint64_t step) {
  gpusock::launch(context, model.shape(1), hand_over_one, state(), exchange_of_numbers);
  gpusock::launch(context, model.shape(1), wait_for_exchange, state(), exchange_of_numbers, clock_of(step) + 1,
                  memory.step_waited_ns.data() + step);
}

/// Launches the kernel that computes a layer's gradients and hands them over, or the one that hands its factors over.
void SchemeNode::launch_backward(int layer, std::uint64_t step) {
  const NodeState node = state();
  const bool is_first = layer + 1 == plan.layout.size();
  if (factors.has(layer)) {
    gpusock::launch(context, model.shape(factors.copying_blocks(layer)), hand_over_factors, node, factors[layer],
                    clock_of(step), activations.input(layer), activations.output_delta(layer), is_first,
                    config.overlap);
  } else {
    const auto bucket = static_cast<std::size_t>(exchange_plan.bucket_of(layer));
    with_layer(layer, exchange_plan.bucket_of(layer), [&]<class Kind>(const NodeLayer<Kind>& at) {
      gpusock::launch(context, model.shape(at.kind.blocks()), backward_and_hand_over<Kind>, node, at,
                      exchange.in_place_reservations(bucket), clock_of(step), activations.input(layer),
                      activations.output_delta(layer), plan.batch, is_first, config.overlap);
    });
  }
}

/// Launches the kernels that make weights from gathered factors.
void SchemeNode::launch_factors(std::uint64_t step, const std::function<void()>& mark) {
  const NodeState node = state();
  std::uint64_t* waited_ns = memory.step_waited_ns.data() + step;
  for (const int layer : factors.made_here()) {
    const FactorExchange& gathered = factors[layer];
    gpusock::launch(context, model.shape(1), wait_for_exchange, node, gathered.gather, clock_of(step) + 1, waited_ns);
    mark();
    with_layer(layer, exchange_plan.bucket_of(layer), [&]<class Kind>(const NodeLayer<Kind>& at) {
      if constexpr (Kind::kHasFactors) {  // the plan gives other layers no such exchange
        const auto apply = [&]<class Update>(const Update& update) {
          gpusock::launch(context, model.shape(at.kind.blocks()), apply_and_hand_over<Kind, Update>, node, at, update,
                          gathered);
        };
        std::visit(apply, plan.update);
      }
    });
    mark();
  }
}

void SchemeNode::copy_own_states() { copy_states(memory.states.data(), 0, memory.parameters); }

}  // namespace param_sync
