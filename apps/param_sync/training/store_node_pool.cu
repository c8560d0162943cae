// The steps of a node whose weights and gradients are in a pool of device memory only while they are used.
#include "training/store_node.cuh"

namespace param_sync {

void StoreNode::launch_exchange_in_pool(const gpusock::LaunchShape& shape, const StoreMoves& moves) {
  gpusock::launch(context, shape, exchange_and_stage, moving_state(), moves,
                  pool->staging(plan, memory.weights.data()));
}

void StoreNode::launch_step_in_pool(std::uint64_t step) {
  const SamplesView samples = training.from(step * plan.batch);
  model.gather(samples, plan.batch, activations);
  for (int layer = 0; layer < plan.layout.size(); ++layer) launch_forward_in_pool(layer, step);
  model.loss(samples, plan.batch, activations, plan.rate_share(step), losses.data(), board.data(), step,
             step_times_ns.data());
  for (int layer = plan.layout.size() - 1; layer >= 0; --layer) {
    if (layer > 0) launch_errors_in_pool(layer, step);
    launch_gradients_in_pool(layer, step);
  }
}

void StoreNode::launch_forward_in_pool(int layer, std::uint64_t step) {
  const PoolUse weights = pool->use(*plan.pool, plan.pool->outputs_kernel(layer), step);
  with_layer(layer, layer, [&]<class Kind>(const NodeLayer<Kind>& at) {
    gpusock::launch(context, model.shape(at.kind.forward_blocks(plan.batch)), forward_in_pool<Kind>, state(), at,
                    weights, plan.sync.version_of(step, own(layer)), activations.input(layer), plan.batch,
                    activations.output(layer), memory.step_waited_ns.data() + step);
  });
}

void StoreNode::launch_errors_in_pool(int layer, std::uint64_t step) {
  const PoolUse weights = pool->use(*plan.pool, plan.pool->errors_kernel(layer), step);
  with_layer(layer, layer, [&]<class Kind>(const NodeLayer<Kind>& at) {
    gpusock::launch(context, model.shape(at.kind.backward_blocks(plan.batch)), backward_input_in_pool<Kind>, state(),
                    at, plan.layout[layer - 1].sums(), weights, activations.output_delta(layer),
                    activations.input(layer), plan.batch, activations.output_delta(layer - 1));
  });
}

void StoreNode::launch_gradients_in_pool(int layer, std::uint64_t step) {
  const PoolUse gradients = pool->use(*plan.pool, plan.pool->gradients_kernel(layer), step);
  with_layer(layer, layer, [&]<class Kind>(const NodeLayer<Kind>& at) {
    gpusock::launch(context, model.shape(at.kind.blocks()), backward_in_pool<Kind>, state(), at, gradients,
                    activations.input(layer), activations.output_delta(layer), plan.batch,
                    layer + 1 == plan.layout.size());
  });
}

}  // namespace param_sync
