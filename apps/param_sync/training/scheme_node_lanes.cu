// A node's resident lanes: their schedules, their tensors, and when they begin and end.
#include "param_sync/executor/handover.cuh"
#include "training/exchange.cuh"
#include "training/scheme_node.cuh"

#include <chrono>
#include <thread>
#include <utility>

namespace param_sync {

executor::Settings SchemeNode::exchange_settings() const {
  executor::Settings settings;
  settings.rank = config.rank;
  settings.ring_bytes = exchange_plan.ring_bytes;
  settings.unit_bytes = exchange_plan.unit_bytes;
  settings.connect_timeout_ns = static_cast<std::uint64_t>(config.connect_timeout_s() * 1e9);
  settings.execution = exchange_plan.execution;
  settings.last_words = executor::LastWordsBy::host;
  return settings;
}

/// Looks for failures while it waits: a block may have failed while another one waits for a rank that does not answer.
void SchemeNode::connect(const std::vector<gpusock::Endpoint>& peers) {
  constexpr auto kTurn = std::chrono::milliseconds(1);
  addresses = peers;
  exchange.begin_connect(peers, settings());
  while (exchange.is_connecting()) {
    check();
    std::this_thread::sleep_for(kTurn);
  }
  check();
  exchange.await_connect();
}

/// Returns what the lanes of a bucket exchange, and how often it is handed over in a step.
executor::Exchanged SchemeNode::exchanged(std::size_t index) const {
  const Bucket& bucket = exchange_plan.buckets[index];
  executor::Exchanged tensor;
  tensor.schedule = index;
  tensor.count = bucket.floats;
  tensor.ready_per_step = config.overlap ? blocks_of(bucket) : 1;
  if (bucket.carries == Carries::gradients) {
    tensor.gradients = memory.gradients.data() + bucket.offset;
    tensor.in_place = true;
    tensor.optimizing = {plan.update, memory.state().states.from(bucket.offset), memory.weights.data() + bucket.offset};
    return tensor;
  }
  if (bucket.carries == Carries::numbers) {
    const bool forward = exchange_plan.shared_forward_of(bucket.first_layer) == static_cast<int>(index);
    tensor.gradients = forward ? shared.forward(bucket.first_layer, 0) : shared.backward(bucket.first_layer, 0);
    tensor.ready_per_step = 1;
    return tensor;
  }
  const FactorExchange& layer = factors[bucket.first_layer];
  if (config.overlap) tensor.ready_per_step = factors.copying_blocks(bucket.first_layer);
  tensor.gradients = layer.gathered;
  if (bucket.carries == Carries::factors) return tensor;
  tensor.gradients = memory.weights.data() + bucket.offset;
  if (layer.makes_weights) tensor.ready_per_step = plan.layout[bucket.first_layer].blocks();
  return tensor;
}

/// Prepares the lanes. Must be called before any kernel runs, and after `first_step` is known.
void SchemeNode::prepare_residents() {
  std::vector<executor::Exchanged> tensors;
  for (std::size_t i = 0; i < exchange_plan.buckets.size(); ++i) tensors.push_back(exchanged(i));
  executor::Residence residence;
  residence.steps = clock_of(plan.steps);
  residence.timeout_ns = state().timeout_ns;
  residence.words = exchange_words.data();
  residence.times = exchange_times.data();
  residence.failed = memory.failed.data();
  residence.stop = memory.stop.data();
  residence.in_order = config.priority;
  residence.credits = static_cast<std::uint64_t>(config.credits);
  if (config.budget_bytes != 0) residence.codec = codec::TopKSettings{config.budget_bytes, order_of(config)};
  residence.traced_steps = traced_steps;
  residence.executors_on_device = config.in_process ? static_cast<unsigned>(config.nodes) : 1;
  exchange.prepare_resident(tensors, residence);
}

void SchemeNode::launch_residents() {
  exchange.start_resident();
  if (peer_count != 0)
    gpusock::launch(context, {.stream = &watching, .blocks_share_threads = true}, watch_nodes, state(), ending.data(),
                    heard.data());
}

/// Number of blocks that compute a bucket's gradients.
std::uint64_t SchemeNode::blocks_of(const Bucket& bucket) const {
  std::uint64_t blocks = 0;
  for (int layer = bucket.first_layer; layer < bucket.end_layer; ++layer) blocks += plan.layout[layer].blocks();
  return blocks;
}

/// Ends the resident kernels. All weights have arrived, so they have nothing left to do.
void SchemeNode::await_residents() {
  exchange.await_resident();
  check();
  {
    const std::lock_guard lock(saying);
    if (std::exchange(last_said, true)) throw Interrupted();  // request_stop() has said the last word
    end_watch(ending[0]);
    gpusock::launch(context, model.shape(1), leave, state());
    compute.synchronize();
  }
  watching.synchronize();
}

}  // namespace param_sync
