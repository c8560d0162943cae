#include "training/scheme_node.cuh"

#include "report/lane_stall.hpp"
#include "training/collect.cuh"
#include "training/exchange.cuh"
#include "training/run_settings.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

namespace param_sync {
namespace {

constexpr auto kSayingTurn = std::chrono::microseconds(100);

using SteadyClock = std::chrono::steady_clock;

/// Returns all exchanges but those of weights that this node makes from factors: these are handed over later.
gpusock::DeviceBuffer<std::int32_t> computed_exchanges(gpusock::Context& context, const ExchangePlan& plan,
                                                       const FactorLayers& factors) {
  std::vector<std::int32_t> all;
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    const Bucket& bucket = plan.buckets[i];
    if (bucket.carries == Carries::numbers) continue;  // they are handed over, and taken, before gradients
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

SchemeNode::SchemeNode(const Config& run, const Dataset& dataset, LossObserver loss_observer)
    : Impl(run, dataset, std::move(loss_observer)),
      exchange_plan(make_exchange_plan(run, plan.layout)),
      exchange(context, exchange_settings(), exchange_plan.schedules),
      exchange_words(context, exchange_plan.buckets.size()),
      factors(context, exchange_plan, plan, run.rank),
      computed(computed_exchanges(context, exchange_plan, factors)),
      ending(context, 1),
      heard(context, static_cast<std::size_t>(run.nodes)),
      said(context, 1),
      traced_steps(config.trace_file.empty() ? 0 : std::min(config.trace_steps, plan.steps)),
      marks(context, std::max<std::size_t>(1, traced_steps * marks_of_step(plan.layout.size(), plan.layout.size()))) {
  for (std::size_t peer = 0; peer < heard.size(); ++peer) heard[peer] = {};
  if (!config.checkpoint_folder.empty()) {
    checkpoints.emplace(CheckpointFiles(config.checkpoint_folder, config.rank, plan.layout, settings()));
    if (!config.resume.empty()) resume();
  }
  prepare_residents();
}

SchemeNode::~SchemeNode() {
  say_last({});  // does nothing if the last word was said before
  end_kernels();
}

/// Ends all kernels, which must happen before their memory is freed. Returns a faulted kernel's message, or nothing.
std::string SchemeNode::end_kernels() noexcept {
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

NodeState SchemeNode::state() {
  NodeState node = common_state();
  node.words = exchange.last_words();
  node.timeout_ns = static_cast<std::uint64_t>(config.timeout_s * 1e9);
  node.exchanges = exchange_words.data();
  node.exchange_count = static_cast<std::int32_t>(exchange_plan.buckets.size());
  return node;
}

RunSettings SchemeNode::settings() const { return run_settings(config, data, plan, exchange_plan, first_step); }

/// Reads a checkpoint, if there is one. Must be called before any kernel runs.
void SchemeNode::resume() {
  const std::uint64_t step = config.resume == "latest" ? checkpoints->files().latest() : std::stoull(config.resume);
  if (step == 0) return;
  const Checkpoint checkpoint = checkpoints->files().read(step);
  memory.weights.copy_in(checkpoint.weights);
  memory.states.copy_in(checkpoint.states);
  first_step = step;
}

/// Returns the failure that a kernel of this node has recorded, if any.
std::optional<Failure> SchemeNode::failure() {
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
    // A node of a store gives no settings when it connects.
    if (record.field == RunSetting::version && lanes->theirs == 0) record.field = RunSetting::sync;
    record.ours = lanes->ours;
    record.theirs = lanes->theirs;
  }
  return record;
}

/// The executor has failed with a peer. If the peer has told why it ends, `record` becomes that failure: the peer may
/// have lost another rank before. If it says nothing, and its connection for last words goes on, the lost rank is
/// unknown.
void SchemeNode::ask_peer(Failure& record) noexcept {
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
void SchemeNode::say_last(const LastWord& word) noexcept {
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

gpusock::Endpoint SchemeNode::address_of(int rank) const {
  const bool known = rank >= 0 && static_cast<std::size_t>(rank) < addresses.size();
  return known ? addresses[static_cast<std::size_t>(rank)] : gpusock::Endpoint{};
}

/// Tells the observer, then the other nodes, and gives them time to see it.
void SchemeNode::tell(const Loss& loss, const LastWord& word) {
  if (observer.tell) observer.tell(loss);
  say_last(word);
  linger();
}

void SchemeNode::check() {
  if (const auto recorded = failure()) {
    Failure record = *recorded;
    if (!stopping && may_have_told(record)) ask_peer(record);
    Loss loss;
    if (in_training(record) && peer_count > 0) {
      loss.cause = cause_of(record);
      loss.step_progress = {config.rank, exchange.positions(), first_step, shape_of(data).sample};
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

void SchemeNode::add_traffic(Progress& now) const {
  now.pushed_per_step = exchange_plan.pushed_bytes(config.rank);
  now.dense_per_step = std::max(exchange_plan.dense_bytes(config.rank), now.pushed_per_step);
  now.pulled_per_step = now.pushed_per_step;
}

void SchemeNode::finish(NodeReport& report) {
  report.layers.resize(plan.layout.layers.size());
  std::vector<executor::ExchangeWords> words(exchange_words.size());
  exchange_words.copy_out(words);
  collect_traffic(exchange_plan, plan.layout, words, report);
  std::vector<std::uint64_t> written(marks.size());
  marks.copy_out(written);
  collect_trace(exchange_plan, exchange, written, plan.layout.size(), factors, traced_steps, report);
}

gpusock::Endpoint SchemeNode::listen(const gpusock::Endpoint& at) {
  try {
    return exchange.listen(at);
  } catch (const gpusock::Error& error) {
    check();
    const Failure failed{FailureKind::listen, config.rank, error.code().value()};
    throw NodeFailure(describe(failed, config.rank, at, plan.layout));
  }
}

void SchemeNode::request_stop() noexcept {
  stopping = true;
  say_last({.why = LastWord::Why::interrupted});  // after cancel() no kernel could tell it
  end_waits(memory.stop[0]);
  context.cancel();
}

std::unique_ptr<Node::Impl> make_scheme_node(const Config& config, const Dataset& data, LossObserver observer) {
  return std::make_unique<SchemeNode>(config, data, std::move(observer));
}

}  // namespace param_sync
