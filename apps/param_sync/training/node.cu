#include "training/node.hpp"

#include "arithmetic/model.hpp"
#include "checkpoint/checkpoint.cuh"
#include "checkpoint/checkpoint.hpp"
#include "executor/executor.hpp"
#include "layout/hash.hpp"
#include "plan/exchange_plan.hpp"
#include "plan/plan.hpp"
#include "report/lane_stall.hpp"
#include "training/collect.cuh"
#include "training/exchange.cuh"
#include "training/factor_layers.cuh"
#include "training/hello.cuh"
#include "training/node_memory.cuh"
#include "training/step.cuh"
#include "training/trace.cuh"
#include "training/watch.cuh"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

namespace param_sync {
namespace {

constexpr std::uint64_t kQueuedStepsMax = 32;  // steps launched ahead of the device
// After a loss, before this node's own sockets close, if no process reports that the others have seen which node was
// lost first.
constexpr auto kLinger = std::chrono::milliseconds(300);

constexpr auto kSetupTurn = std::chrono::milliseconds(1);

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

}  // namespace

struct Node::Impl {
  Impl(const Config& run, const Dataset& dataset, Linger until_seen);
  ~Impl();

  NodeState state();
  Hello hello() const;
  void launch_step(std::uint64_t step);
  void prepare_residents();
  void launch_residents();
  executor::Settings exchange_settings() const;
  void launch_backward(int layer, std::uint64_t step);
  void launch_factors(std::uint64_t step, const std::function<void()>& mark);
  executor::Exchanged exchanged(std::size_t bucket) const;
  void connect_exchange();
  void await_residents();
  std::uint64_t blocks_of(const Bucket& bucket) const;
  std::uint64_t* marks_of(std::uint64_t step);
  std::optional<Failure> failure();
  void evaluate(std::uint64_t step, NodeReport& report);
  void resume();
  void write_checkpoint(std::uint64_t step);
  /// Kernels count clocks from 0 in every run; steps count from the beginning of the training.
  std::uint64_t clock_of(std::uint64_t step) const { return step - first_step; }
  void check();
  void await_setup(gpusock::Stream& stream);
  void finish(NodeReport& report);
  Progress progress(SteadyClock::time_point start) const;
  std::string end_kernels() noexcept;

  Config config;
  const Dataset& data;
  Linger linger;
  Plan plan;
  int peer_count;
  std::optional<CheckpointFiles> checkpoints;
  std::uint64_t first_step = 0;  ///< of this run: not 0 where it goes on from a checkpoint

  gpusock::Context context;
  gpusock::Stream compute{context};
  gpusock::Stream accepting{context};
  gpusock::Stream connecting{context};
  std::atomic<bool> stopping{false};
  std::vector<gpusock::Endpoint> addresses;

  ExchangePlan exchange_plan;
  executor::Executor exchange;
  gpusock::DeviceBuffer<executor::ExchangeWords> exchange_words;
  gpusock::DeviceBuffer<executor::ExchangeTimes> exchange_times;
  FactorLayers factors;
  gpusock::Mapped<std::uint64_t> ending;  ///< not 0 once this node has trained to its end

  Model model{context, compute, plan.layout};
  DeviceSamples training;
  DeviceSamples test;
  Activations activations;
  Activations test_activations;
  NodeMemory memory;
  gpusock::Mapped<Listening> listening;
  gpusock::Mapped<StepBoard> board;
  gpusock::Mapped<float> losses;
  gpusock::Mapped<std::uint64_t> step_times_ns;  // when they were computed
  gpusock::Mapped<Score> score;
  gpusock::Mapped<float> image;  ///< copy_state's, where there are checkpoints
  std::uint64_t traced_steps;    ///< of this run, the first ones
  gpusock::DeviceBuffer<std::uint64_t> marks;
};

Node::Impl::Impl(const Config& run, const Dataset& dataset, Linger until_seen)
    : config(run),
      data(dataset),
      linger(until_seen ? std::move(until_seen) : [](const Loss&) { std::this_thread::sleep_for(kLinger); }),
      plan(Plan::make(run, dataset)),
      peer_count(run.nodes - 1),
      exchange_plan(make_exchange_plan(run, plan.layout)),
      exchange(context, exchange_settings(), exchange_plan.schedules),
      exchange_words(context, 2 * kLayersMax),
      exchange_times(context, 1),
      factors(context, exchange_plan, plan, run.rank),
      ending(context, 1),
      training(context, dataset.train, training_order(run, dataset, run.rank)),
      test(context, dataset.test, test_order(dataset)),
      activations(context, plan.layout, plan.batch),
      test_activations(context, plan.layout, kEvaluationRows),
      memory(context, run, plan),
      listening(context, 1),
      board(context, 1),
      losses(context, plan.steps),
      step_times_ns(context, plan.steps),
      score(context, 1),
      image(context, config.checkpoint_folder.empty() ? 1 : std::size_t{2} * plan.layout.parameters()),
      traced_steps(config.trace_file.empty() ? 0 : std::min(config.trace_steps, plan.steps)),
      marks(context, std::max<std::size_t>(1, traced_steps * marks_of_step(plan.layout.layers, plan.layout.layers))) {
  if (!config.checkpoint_folder.empty()) {
    const Hello settings = hello();
    checkpoints.emplace(config.checkpoint_folder, config.rank, config.nodes, settings.value);
    if (!config.resume.empty()) resume();
  }
  prepare_residents();
}

Node::Impl::~Impl() { end_kernels(); }

/// Ends all kernels, as is due before the memory goes that they use. Says which kernel has faulted, if one has.
std::string Node::Impl::end_kernels() noexcept {
  std::string fault;
  end_waits(memory.stop[0]);
  context.cancel();
  for (gpusock::Stream* stream : {&compute, &accepting, &connecting}) {
    try {
      stream->synchronize();
    } catch (const gpusock::Error& error) {
      fault = error.what();
    }
  }
  try {
    exchange.await_resident();
  } catch (const gpusock::Error& error) {
    fault = error.what();
  }
  return fault;
}

NodeState Node::Impl::state() {
  NodeState node = memory.state();
  node.net = context.net();
  node.layout = plan.layout;
  node.optimizer = plan.optimizer;
  node.rank = config.rank;
  node.timeout_ns = static_cast<std::uint64_t>(config.timeout_s * 1e9);
  node.exchanges = exchange_words.data();
  for (int layer = 0; layer < plan.layout.layers; ++layer) {
    node.exchange_of[layer] = static_cast<std::uint8_t>(exchange_plan.bucket_of(layer));
  }
  return node;
}

Hello Node::Impl::hello() const {
  Hello hello;
  hello.rank = static_cast<std::uint64_t>(config.rank);
  hello[HelloField::version] = Hello::kVersion;
  hello[HelloField::nodes] = static_cast<std::uint64_t>(config.nodes);
  hello[HelloField::model] = plan.layout.fingerprint();
  hello[HelloField::data] = data.fingerprint();
  hello[HelloField::steps] = plan.steps;
  hello[HelloField::batch] = config.batch;
  hello[HelloField::seed] = config.seed;
  hello[HelloField::optimizer] = std::uint64_t{std::bit_cast<std::uint32_t>(config.learning_rate)} << 32 |
                                 std::bit_cast<std::uint32_t>(config.momentum);
  hello[HelloField::scheme] = code_of(exchange_plan.schemes);
  hello[HelloField::transfer] = fnv1a(&config.budget_bytes, sizeof config.budget_bytes,
                                      config.fuse_bytes | static_cast<std::uint64_t>(config.slots) << 32);
  hello[HelloField::first_step] = first_step;
  return hello;
}

executor::Settings Node::Impl::exchange_settings() const {
  executor::Settings settings;
  settings.rank = config.rank;
  settings.ring_bytes = exchange_plan.ring_bytes;
  settings.unit_bytes = exchange_plan.unit_bytes;
  settings.connect_timeout_ns = static_cast<std::uint64_t>(config.connect_timeout_s() * 1e9);
  settings.execution = exchange_plan.execution;
  return settings;
}

/// When all nodes have compared their settings.
void Node::Impl::connect_exchange() {
  exchange.use_listener(listening[0].socket);
  try {
    exchange.begin_connect(addresses);
    exchange.await_connect();
  } catch (const gpusock::Error& error) {
    if (stopping) throw Interrupted();
    throw NodeFailure(error.what());
  }
}

/// Before any kernel runs.
void Node::Impl::resume() {
  const std::uint64_t step = config.resume == "latest" ? checkpoints->latest() : std::stoull(config.resume);
  if (step == 0) return;
  const Checkpoint checkpoint = checkpoints->read(step, plan.layout.parameters());
  memory.weights.copy_in(checkpoint.weights);
  memory.velocity.copy_in(checkpoint.velocity);
  first_step = step;
}

/// Waits for the step's weights and writes them. The next step begins afterwards, on all nodes: it needs this one's.
void Node::Impl::write_checkpoint(std::uint64_t step) {
  const std::uint32_t parameters = plan.layout.parameters();
  gpusock::launch(context, model.shape(1), wait_for_weights, state(), clock_of(step));
  gpusock::launch(context, model.shape(16), copy_state, memory.weights.data(), memory.velocity.data(), parameters,
                  image.data());
  compute.synchronize();
  check();
  const float* values = image.data();
  checkpoints->write(
      {step, {values, values + parameters}, {values + parameters, values + 2 * std::size_t{parameters}}});
}

/// What a kernel of this node has recorded.
std::optional<Failure> Node::Impl::failure() {
  if (has_failed(memory.failure[0])) return memory.failure[0];
  const auto lanes = exchange.failure();
  if (!lanes) return std::nullopt;
  Failure record{1, FailureKind::protocol, -1, lanes->error};
  if (lanes->kind == executor::ExecutionFailureKind::receive) record.kind = FailureKind::receive;
  if (lanes->kind == executor::ExecutionFailureKind::send) record.kind = FailureKind::send;
  if (lanes->kind == executor::ExecutionFailureKind::late) record.kind = FailureKind::late;
  if (lanes->channel >= 0) record.rank = exchange.channels()[static_cast<std::size_t>(lanes->channel)].peer;
  return record;
}

/// Throws what a kernel has recorded, or Interrupted.
void Node::Impl::check() {
  if (const auto recorded = failure()) {
    const Failure record = *recorded;
    const bool known = record.rank >= 0 && static_cast<std::size_t>(record.rank) < addresses.size();
    const gpusock::Endpoint peer = known ? addresses[record.rank] : gpusock::Endpoint{};
    Loss loss;
    if (in_training(record) && peer_count > 0) {
      loss.stalled = record.error == ETIMEDOUT;  // whom that wait was for says little: see stall.hpp
      loss.step_progress = {config.rank, exchange.positions(), first_step, layer_widths(config, data)};
    }
    if (!stopping) linger(loss);
    // A kernel's fault explains more than that another kernel has waited for it in vain.
    if (const std::string fault = end_kernels(); !fault.empty()) throw gpusock::Error(EFAULT, fault);
    if (!stopping && loss.stalled)
      throw NodeFailure(describe_lanes_alone(exchange_plan, *loss.step_progress, config.timeout_s));
    if (!stopping) throw NodeFailure(describe(record, config.rank, peer, plan.layout));
  }
  if (stopping) throw Interrupted();
}

/// Waits for a stream's kernels, but no longer than until one of them fails: others may wait for that node in vain.
void Node::Impl::await_setup(gpusock::Stream& stream) {
  while (!stream.idle()) {
    check();
    std::this_thread::sleep_for(kSetupTurn);
  }
  stream.synchronize();
  check();
}

/// What the lanes of a bucket exchange, and how often it is handed over in a step.
executor::Exchanged Node::Impl::exchanged(std::size_t index) const {
  const Bucket& bucket = exchange_plan.buckets[index];
  executor::Exchanged tensor;
  tensor.schedule = index;
  tensor.count = bucket.floats;
  tensor.ready_per_step = config.overlap ? blocks_of(bucket) : 1;
  if (bucket.carries == Carries::gradients) {
    tensor.gradients = memory.gradients.data() + bucket.offset;
    tensor.in_place = true;
    tensor.optimizing = {plan.optimizer, memory.velocity.data() + bucket.offset, memory.weights.data() + bucket.offset};
    return tensor;
  }
  const FactorExchange& layer = factors[bucket.first_layer];
  if (config.overlap) tensor.ready_per_step = factors.copying_blocks(bucket.first_layer);
  tensor.gradients = layer.gathered;
  if (bucket.carries == Carries::factors) return tensor;
  tensor.gradients = memory.weights.data() + bucket.offset;
  if (layer.makes_weights) tensor.ready_per_step = plan.layout.layer[bucket.first_layer].blocks();
  return tensor;
}

/// Of the lanes. Before any kernel runs, and when it is known with which step the training begins.
void Node::Impl::prepare_residents() {
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
  residence.slots = static_cast<std::uint64_t>(config.slots);
  residence.budget_bytes = config.budget_bytes;
  residence.traced_steps = traced_steps;
  residence.executors_on_device = config.in_process ? static_cast<unsigned>(config.nodes) : 1;
  exchange.prepare_resident(tensors, residence);
}

void Node::Impl::launch_residents() {
  exchange.start_resident();
  if (peer_count != 0) gpusock::launch(context, {.stream = &accepting}, watch_nodes, state(), ending.data());
}

/// Blocks that compute a bucket's gradients.
std::uint64_t Node::Impl::blocks_of(const Bucket& bucket) const {
  std::uint64_t blocks = 0;
  for (int layer = bucket.first_layer; layer < bucket.end_layer; ++layer) blocks += plan.layout.layer[layer].blocks();
  return blocks;
}

/// All weights are there: the resident kernels have nothing left to do.
void Node::Impl::await_residents() {
  exchange.await_resident();
  end_watch(ending[0]);
  gpusock::launch(context, {.stream = &compute}, leave, state());
  compute.synchronize();
  accepting.synchronize();
}

/// Where the times of a step are written; none where it is not traced.
std::uint64_t* Node::Impl::marks_of(std::uint64_t step) {
  const std::size_t each = marks_of_step(plan.layout.layers, plan.layout.layers);
  return clock_of(step) < traced_steps ? marks.data() + clock_of(step) * each : nullptr;
}

/// Launches only: nothing here waits for the device.
void Node::Impl::launch_step(std::uint64_t step) {
  const NodeState node = state();
  const Layout& layout = plan.layout;
  const std::uint64_t clock = clock_of(step);
  const SamplesView samples = training.from(step * plan.batch);
  std::uint64_t* next_mark = marks_of(step);
  const bool traced = next_mark != nullptr;
  const auto mark = [&] {
    if (traced) gpusock::launch(context, {.stream = &compute}, mark_time, next_mark++);
  };
  model.gather(samples, plan.batch, activations);
  mark();
  for (int layer = 0; layer < layout.layers; ++layer) {
    std::uint64_t* waited_ns = memory.step_waited_ns.data() + step;
    if (traced) gpusock::launch(context, model.shape(1), wait_for_layer, node, layer, clock, waited_ns);
    mark();
    gpusock::launch(context, model.shape(compute_blocks(plan.batch, layout.layer[layer].outputs)), forward_when_ready,
                    node, layer, clock, activations.input(layer), plan.batch, activations.output(layer), waited_ns);
    mark();
  }
  model.loss(samples, plan.batch, activations, losses.data(), board.data(), step, step_times_ns.data());
  mark();
  for (int layer = layout.layers - 1; layer >= 0; --layer) {
    // The last kernel that reads the layer's weights comes before its gradients are handed over: from then on, lanes
    // write new weights (L9).
    if (layer > 0) model.backward_input(layer, memory.weights.data(), plan.batch, activations);
    launch_backward(layer, step);
    mark();
  }
  if (!config.overlap) {
    std::uint32_t buckets = 0;
    for (std::size_t i = 0; i < exchange_plan.buckets.size(); ++i) {
      const Bucket& bucket = exchange_plan.buckets[i];
      if (bucket.carries == Carries::weights && factors[bucket.first_layer].makes_weights) continue;
      buckets |= 1u << i;
    }
    gpusock::launch(context, {.stream = &compute}, hand_over_all, node, buckets);
  }
  launch_factors(step, mark);
}

/// Computes a layer's gradients by its parameters, and hands them over; or hands its factors over.
void Node::Impl::launch_backward(int layer, std::uint64_t step) {
  const NodeState node = state();
  const bool is_first = layer + 1 == plan.layout.layers;
  const gpusock::LaunchShape shape = model.shape(plan.layout.layer[layer].blocks());
  if (factors.has(layer)) {
    gpusock::launch(context, model.shape(factors.copying_blocks(layer)), hand_over_factors, node, factors[layer],
                    clock_of(step), activations.input(layer), activations.output_delta(layer), is_first, config.overlap,
                    exchange_times.data());
  } else {
    const auto bucket = static_cast<std::size_t>(exchange_plan.bucket_of(layer));
    gpusock::launch(context, shape, backward_and_hand_over, node, layer, exchange.places(bucket), clock_of(step),
                    activations.input(layer), activations.output_delta(layer), plan.batch, is_first, config.overlap,
                    exchange_times.data());
  }
}

/// Makes weights of gathered factors.
void Node::Impl::launch_factors(std::uint64_t step, const std::function<void()>& mark) {
  const NodeState node = state();
  std::uint64_t* waited_ns = memory.step_waited_ns.data() + step;
  for (const int layer : factors.made_here()) {
    const FactorExchange& gathered = factors[layer];
    gpusock::launch(context, model.shape(1), wait_for_factors, node, gathered, clock_of(step), waited_ns);
    mark();
    gpusock::launch(context, model.shape(plan.layout.layer[layer].blocks()), apply_factors, node, gathered, layer);
    mark();
  }
}

void Node::Impl::evaluate(std::uint64_t step, NodeReport& report) {
  gpusock::launch(context, model.shape(1), wait_for_weights, state(), clock_of(step));
  if (config.rank == 0) {
    score[0] = {};
    model.evaluate(test, memory.weights.data(), test_activations, score.data());
  }
  compute.synchronize();
  check();
  if (config.rank != 0) return;
  report.accuracies.push_back(static_cast<double>(score[0].correct) / static_cast<double>(test.visits()));
  report.test_loss = score[0].loss / static_cast<double>(test.visits());
}

Progress Node::Impl::progress(SteadyClock::time_point start) const {
  Progress now;
  now.steps = std::max(board[0].published(), first_step);
  now.first_step = first_step;
  now.steps_all = plan.steps;
  now.steps_per_epoch = plan.steps_per_epoch;
  now.loss = now.steps == first_step ? 0 : losses[now.steps - 1];
  now.train_s = seconds_since(start);
  for (std::uint64_t step = first_step; step < now.steps; ++step) {
    now.waited_s += static_cast<double>(memory.step_waited_ns[step]) * 1e-9;
  }
  now.pushed_per_step = exchange_plan.pushed_bytes(config.rank);
  now.dense_per_step = std::max(exchange_plan.dense_bytes(config.rank), now.pushed_per_step);
  return now;
}

/// All kernels have ended well: collects what they have counted.
void Node::Impl::finish(NodeReport& report) {
  memory.collect(report, first_step);
  report.layers.resize(static_cast<std::size_t>(plan.layout.layers));
  std::vector<executor::ExchangeWords> words(exchange_words.size());
  exchange_words.copy_out(words);
  collect_traffic(exchange_plan, plan.layout, words, report);
  executor::ExchangeTimes times{};
  exchange_times.copy_out({&times, 1});
  report.communicating_ns = times.communicating_ns;
  std::vector<std::uint64_t> written(marks.size());
  marks.copy_out(written);
  collect_trace(exchange_plan, exchange, written, plan.layout.layers, factors, traced_steps, report);
  collect_links(context, report);
  report.losses.assign(losses.begin() + static_cast<std::ptrdiff_t>(first_step), losses.end());
  for (std::uint64_t step = first_step; step < plan.steps; ++step) {
    report.step_times_ns.push_back(step_times_ns[step] - step_times_ns[first_step]);
  }
}

Node::Node(const Config& config, const Dataset& data, Linger linger)
    : impl_(std::make_unique<Impl>(config, data, std::move(linger))) {}
Node::~Node() = default;

gpusock::Endpoint Node::listen(const gpusock::Endpoint& at) {
  Impl& node = *impl_;
  gpusock::Endpoint listening_at = at;
  listening_at.ring_bytes = static_cast<std::uint32_t>(node.exchange_plan.ring_bytes);
  gpusock::launch(node.context, {.stream = &node.compute}, open_listener, node.context.net(), listening_at,
                  node.listening.data());
  node.compute.synchronize();
  if (node.listening[0].socket < 0) {
    const Failure failed{1, FailureKind::listen, node.config.rank, -node.listening[0].socket};
    node.check();
    throw NodeFailure(describe(failed, node.config.rank, at, node.plan.layout));
  }
  return node.listening[0].at;
}

void Node::connect(const std::vector<gpusock::Endpoint>& peers) {
  Impl& node = *impl_;
  node.addresses = peers;
  if (node.peer_count == 0) return;
  node.memory.endpoints.copy_in(peers);
  const auto grid = static_cast<unsigned>(node.peer_count);
  const Hello hello = node.hello();
  NodeState setting_up = node.state();
  setting_up.timeout_ns = static_cast<std::uint64_t>(node.config.connect_timeout_s() * 1e9);
  gpusock::launch(node.context, {.grid = grid, .stream = &node.accepting}, accept_peers, setting_up, hello,
                  node.listening[0].socket);
  gpusock::launch(node.context, {.grid = grid, .stream = &node.connecting}, connect_peers, setting_up, hello,
                  node.memory.endpoints.data());
  node.await_setup(node.connecting);
  node.await_setup(node.accepting);
  gpusock::launch(node.context, {.stream = &node.accepting}, meet_nodes, setting_up);
  node.await_setup(node.accepting);
  node.connect_exchange();
}

NodeReport Node::train(const ProgressSink& progress) {
  Impl& node = *impl_;
  NodeReport report;
  report.rank = node.config.rank;
  report.first_step = node.first_step;
  report.steps = node.plan.steps - node.first_step;
  const auto start = SteadyClock::now();
  const std::uint64_t calls_before = node.context.stats().host_api_calls;
  node.launch_residents();
  for (std::uint64_t step = node.first_step; step < node.plan.steps; ++step) {
    node.launch_step(step);
    if (node.checkpoints && (step + 1) % node.config.checkpoint_steps == 0 && step + 1 < node.plan.steps) {
      node.write_checkpoint(step + 1);
    }
    if ((step + 1) % node.plan.steps_per_epoch == 0) {
      node.evaluate(step + 1, report);
    } else if ((step + 1) % kQueuedStepsMax == 0) {
      node.compute.synchronize();
      node.check();
    } else {
      continue;
    }
    if (!progress) continue;
    Progress now = node.progress(start);
    if (!report.accuracies.empty()) now.accuracy = report.accuracies.back();
    progress(now);
  }
  node.await_residents();
  node.check();
  report.train_s = seconds_since(start);
  report.host_api_calls = node.context.stats().host_api_calls - calls_before;
  node.finish(report);
  return report;
}

std::vector<float> Node::weights() const { return impl_->memory.final_weights(); }

void Node::request_stop() noexcept {
  impl_->stopping = true;
  end_waits(impl_->memory.stop[0]);
  impl_->context.cancel();
}

}  // namespace param_sync
