#include "training/node.hpp"

#include "report/lane_stall.hpp"
#include "training/collect.cuh"
#include "training/exchange.cuh"
#include "training/node_impl.cuh"
#include "training/queued.hpp"
#include "training/run_settings.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

namespace param_sync {
namespace {

// How long a node without an observer waits after a loss before it closes its sockets. Meanwhile the others see which
// node was lost first.
constexpr auto kLinger = std::chrono::milliseconds(300);

constexpr auto kSayingTurn = std::chrono::microseconds(100);

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

/// Returns all exchanges but those of weights that this node makes from factors: these are handed over later.
gpusock::DeviceBuffer<std::int32_t> computed_exchanges(gpusock::Context& context, const ExchangePlan& plan,
                                                       const FactorLayers& factors) {
  std::vector<std::int32_t> all;
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    const Bucket& bucket = plan.buckets[i];
    if (bucket.carries == Carries::weights && factors[bucket.first_layer].makes_weights) continue;
    all.push_back(static_cast<std::int32_t>(i));
  }
  gpusock::DeviceBuffer<std::int32_t> on_device(context, all.size());
  on_device.copy_in(all);
  return on_device;
}

/// True if the peer may have told why it ends: no connection to it could be opened, or one has ended.
bool may_have_told(const Failure& record) {
  if (record.kind == FailureKind::connect || record.kind == FailureKind::accept) return true;
  const bool of_peer = record.kind == FailureKind::receive || record.kind == FailureKind::send;
  return of_peer && (record.error == 0 || record.error == ECONNRESET || record.error == EPIPE);
}

/// Returns the last word in which a node tells the others of its failure. A rank that was told to end is lost, too: the
/// others may hear of it from this node first.
LastWord word_of(const Failure& record) {
  const bool lost = record.rank >= 0 && record.error != ETIMEDOUT &&
                    (record.kind == FailureKind::receive || record.kind == FailureKind::send ||
                     record.kind == FailureKind::end || record.kind == FailureKind::told ||
                     record.kind == FailureKind::interrupted);
  return lost ? LastWord{.why = LastWord::Why::lost, .rank = record.rank} : LastWord{};
}

/// Returns the setting that explains a difference in `field`. The executor's own fields follow from the run's settings
/// if both nodes run the same version, so they differ only if the versions do.
RunSetting setting_of(executor::ChannelHelloField field) {
  using Field = executor::ChannelHelloField;
  if (field == Field::nodes) return RunSetting::nodes;
  if (field == Field::rank) return RunSetting::rank;
  const int index = static_cast<int>(field) - static_cast<int>(Field::program);
  const bool is_own = index > 0 && index < static_cast<int>(RunSetting::rank);
  return is_own ? static_cast<RunSetting>(index) : RunSetting::version;
}

Loss::Cause cause_of(const Failure& record) {
  if (record.error == ETIMEDOUT) return Loss::Cause::stalled;  // the node that it waited for says little: see stall.hpp
  const bool peer_does_not_know = (record.kind == FailureKind::told && record.rank < 0) ||
                                  record.kind == FailureKind::silent;
  return peer_does_not_know ? Loss::Cause::unknown : Loss::Cause::lost;
}

}  // namespace

Node::Impl::Impl(const Config& run, const Dataset& dataset, LossObserver loss_observer)
    : config(run),
      data(dataset),
      observer(std::move(loss_observer)),
      plan(Plan::make(run, dataset)),
      peer_count(run.nodes - 1),
      exchange_plan(make_exchange_plan(run, plan.layout)),
      exchange(context, exchange_settings(), exchange_plan.schedules),
      exchange_words(context, exchange_plan.buckets.size()),
      exchange_times(context, 1),
      factors(context, exchange_plan, plan, run.rank),
      computed(computed_exchanges(context, exchange_plan, factors)),
      ending(context, 1),
      heard(context, static_cast<std::size_t>(run.nodes)),
      said(context, 1),
      training(context, dataset.train, training_order(run, dataset, run.rank)),
      test(context, dataset.test, test_order(dataset)),
      activations(context, plan.layout, plan.batch),
      test_activations(context, plan.layout, kEvaluationRows),
      memory(context, run, plan),
      board(context, 1),
      losses(context, plan.steps),
      step_times_ns(context, plan.steps),
      score(context, 1),
      image(context, config.checkpoint_folder.empty() ? 1 : memory.weights.size() + memory.states.size()),
      traced_steps(config.trace_file.empty() ? 0 : std::min(config.trace_steps, plan.steps)),
      marks(context, std::max<std::size_t>(1, traced_steps * marks_of_step(plan.layout.size(), plan.layout.size()))) {
  for (std::size_t peer = 0; peer < heard.size(); ++peer) heard[peer] = {};
  if (!config.checkpoint_folder.empty()) {
    checkpoints.emplace(config.checkpoint_folder, config.rank, plan.layout, settings());
    if (!config.resume.empty()) resume();
  }
  prepare_residents();
}

Node::Impl::~Impl() {
  say_last({});  // does nothing if the last word was said before
  end_kernels();
}

/// Ends all kernels, which must happen before their memory is freed. Returns a faulted kernel's message, or nothing.
std::string Node::Impl::end_kernels() noexcept {
  std::string fault;
  end_waits(memory.stop[0]);
  context.cancel();
  for (gpusock::Stream* stream : {&compute, &watching}) {
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
  node.words = exchange.last_words();
  node.nodes = config.nodes;
  node.rank = config.rank;
  node.timeout_ns = static_cast<std::uint64_t>(config.timeout_s * 1e9);
  node.exchanges = exchange_words.data();
  node.exchange_count = static_cast<std::int32_t>(exchange_plan.buckets.size());
  node.times = exchange_times.data();
  return node;
}

RunSettings Node::Impl::settings() const { return run_settings(config, data, plan, exchange_plan, first_step); }

/// Reads a checkpoint, if there is one. Must be called before any kernel runs.
void Node::Impl::resume() {
  const std::uint64_t step = config.resume == "latest" ? checkpoints->latest() : std::stoull(config.resume);
  if (step == 0) return;
  const Checkpoint checkpoint = checkpoints->read(step);
  memory.weights.copy_in(checkpoint.weights);
  memory.states.copy_in(checkpoint.states);
  first_step = step;
}

/// Returns the failure that a kernel of this node has recorded, if any.
std::optional<Failure> Node::Impl::failure() {
  if (is_recorded(memory.failure[0])) return memory.failure[0].what;
  const auto lanes = exchange.failure();
  if (!lanes) return std::nullopt;
  Failure record{FailureKind::protocol, -1, lanes->error};
  if (lanes->kind == executor::ExecutionFailureKind::connect) record.kind = FailureKind::connect;
  if (lanes->kind == executor::ExecutionFailureKind::accept) record.kind = FailureKind::accept;
  if (lanes->kind == executor::ExecutionFailureKind::mismatch) record.kind = FailureKind::mismatch;
  if (lanes->kind == executor::ExecutionFailureKind::receive) record.kind = FailureKind::receive;
  if (lanes->kind == executor::ExecutionFailureKind::send) record.kind = FailureKind::send;
  if (lanes->kind == executor::ExecutionFailureKind::late) record.kind = FailureKind::late;
  if (lanes->channel >= 0) record.rank = exchange.channels()[static_cast<std::size_t>(lanes->channel)].peer;
  if (record.kind == FailureKind::mismatch) {
    if (record.rank < 0) record.rank = lanes->lost;
    record.field = setting_of(lanes->field);
    record.ours = lanes->ours;
    record.theirs = lanes->theirs;
  }
  return record;
}

/// The executor has failed with a peer. If the peer has told why it ends, `record` becomes that failure: the peer may
/// have lost another rank before. If it says nothing, and its connection for last words goes on, the lost rank is
/// unknown.
void Node::Impl::ask_peer(Failure& record) noexcept {
  if (record.rank < 0 || peer_count == 0) return;
  try {
    gpusock::launch(context, {.stream = &watching}, hear_peer, state(), record.rank, heard.data());
    watching.synchronize();  // watch_nodes() ends, since the run has failed
  } catch (const gpusock::Error&) {
    return;  // a kernel has faulted: the caller reports it
  }
  const Heard& told = heard[static_cast<std::size_t>(record.rank)];
  if (told.what == Heard::What::mute_end && in_training(record)) return;
  if (told.what == Heard::What::nothing && !in_training(record)) return;
  record = failure_of(told, record.rank);
}

/// Tells all others this node's last word, so that they do not take its end for the cause. Only the first call tells
/// anything. When it returns, the others have been told, or cannot be told. Any thread may call it.
void Node::Impl::say_last(const LastWord& word) noexcept {
  constexpr auto kPatience = std::chrono::seconds(10);  // only a device that has failed takes so long
  const std::lock_guard lock(saying);
  if (std::exchange(last_said, true) || peer_count == 0) return;
  try {
    gpusock::launch(context, {}, tell_word, exchange.last_words(), word, said.data());
  } catch (const gpusock::Error&) {
    return;  // a kernel has faulted: end_kernels() reports it
  }
  const auto until = SteadyClock::now() + kPatience;
  while (!has_said(said[0]) && SteadyClock::now() < until) std::this_thread::sleep_for(kSayingTurn);
}

gpusock::Endpoint Node::Impl::address_of(int rank) const {
  const bool known = rank >= 0 && static_cast<std::size_t>(rank) < addresses.size();
  return known ? addresses[static_cast<std::size_t>(rank)] : gpusock::Endpoint{};
}

/// Tells the observer, then the other nodes, and gives them time to see it.
void Node::Impl::tell(const Loss& loss, const LastWord& word) {
  if (observer.tell) observer.tell(loss);
  say_last(word);
  if (observer.await_others) return observer.await_others();
  std::this_thread::sleep_for(kLinger);
}

/// Throws the failure that a kernel has recorded, or Interrupted if the run was stopped.
void Node::Impl::check() {
  if (const auto recorded = failure()) {
    Failure record = *recorded;
    if (!stopping && may_have_told(record)) ask_peer(record);
    Loss loss;
    if (in_training(record) && peer_count > 0) {
      loss.cause = cause_of(record);
      loss.step_progress = {config.rank, exchange.positions(), first_step, layer_widths(config, data)};
    }
    if (!stopping) tell(loss, word_of(record));
    // A kernel's fault explains more than the failure of another kernel that has waited for it.
    if (const std::string fault = end_kernels(); !fault.empty()) throw gpusock::Error(EFAULT, fault);
    if (!stopping && loss.cause == Loss::Cause::stalled)
      throw NodeFailure(describe_lanes_alone(exchange_plan, *loss.step_progress, config.timeout_s));
    if (!stopping) throw NodeFailure(describe(record, config.rank, address_of(record.rank), plan.layout));
  }
  if (stopping) throw Interrupted();
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

/// Collects what the kernels have counted, after all of them have ended without a failure.
void Node::Impl::finish(NodeReport& report) {
  memory.collect(report, first_step);
  report.layers.resize(plan.layout.layers.size());
  std::vector<executor::ExchangeWords> words(exchange_words.size());
  exchange_words.copy_out(words);
  collect_traffic(exchange_plan, plan.layout, words, report);
  executor::ExchangeTimes times{};
  exchange_times.copy_out({&times, 1});
  executor::begin_compute(times, times.ended_ns);  // counts the time after the last kernel, which is exposed
  report.communicating_ns = times.communicating_ns;
  report.exposed_ns = times.exposed_ns;
  std::vector<std::uint64_t> written(marks.size());
  marks.copy_out(written);
  collect_trace(exchange_plan, exchange, written, plan.layout.size(), factors, traced_steps, report);
  collect_links(context, report);
  report.losses.assign(losses.begin() + static_cast<std::ptrdiff_t>(first_step), losses.end());
  for (std::uint64_t step = first_step; step < plan.steps; ++step) {
    report.step_times_ns.push_back(step_times_ns[step] - step_times_ns[first_step]);
  }
}

Node::Node(const Config& config, const Dataset& data, LossObserver observer)
    : impl_(std::make_unique<Impl>(config, data, std::move(observer))) {}
Node::~Node() = default;

gpusock::Endpoint Node::listen(const gpusock::Endpoint& at) {
  Impl& node = *impl_;
  try {
    return node.exchange.listen(at);
  } catch (const gpusock::Error& error) {
    node.check();
    const Failure failed{FailureKind::listen, node.config.rank, error.code().value()};
    throw NodeFailure(describe(failed, node.config.rank, at, node.plan.layout));
  }
}

void Node::connect(const std::vector<gpusock::Endpoint>& peers) { impl_->connect_exchange(peers); }

NodeReport Node::train(const ProgressSink& progress) {
  Impl& node = *impl_;
  NodeReport report;
  report.rank = node.config.rank;
  report.first_step = node.first_step;
  report.steps = node.plan.steps - node.first_step;
  const auto start = SteadyClock::now();
  const std::uint64_t calls_before = node.context.stats().host_api_calls;
  node.launch_residents();
  QueuedSteps queued;
  for (std::uint64_t step = node.first_step; step < node.plan.steps; ++step) {
    const std::uint64_t calls = step == node.first_step ? node.context.stats().host_api_calls : 0;
    node.launch_step(step);
    // The first step is traced if any is, so that it has the most launches.
    if (step == node.first_step) queued.expect(node.context.stats().host_api_calls - calls);
    queued.add();
    if (node.checkpoints && (step + 1) % node.config.checkpoint_steps == 0 && step + 1 < node.plan.steps) {
      node.write_checkpoint(step + 1);
    }
    if ((step + 1) % node.plan.steps_per_epoch == 0) {
      node.evaluate(step + 1, report);
    } else if (queued.full()) {
      node.compute.synchronize();
      node.check();
    } else {
      continue;
    }
    queued.clear();
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
  impl_->say_last({.why = LastWord::Why::interrupted});  // after cancel() no kernel could tell it
  end_waits(impl_->memory.stop[0]);
  impl_->context.cancel();
}

}  // namespace param_sync
