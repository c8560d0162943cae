#include "training/node.hpp"

#include "checkpoint/checkpoint.cuh"
#include "training/collect.cuh"
#include "training/node_impl.cuh"
#include "training/queued.hpp"
#include "training/store_checkpoints.hpp"
#include "training/step.cuh"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace param_sync {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr unsigned kCopyBlocks = 16;  // of a kernel that copies a checkpoint

// How long a node without an observer waits after a loss before it closes its sockets. Meanwhile the others see which
// node was lost first.
constexpr auto kLinger = std::chrono::milliseconds(300);

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

}  // namespace

Node::Impl::Impl(const Config& run, const Dataset& dataset, LossObserver loss_observer)
    : config(run),
      data(dataset),
      observer(std::move(loss_observer)),
      of_data(sync_of(run.sync).of_groups(run)),
      plan(Plan::make(of_data, dataset)),
      peer_count(run.nodes - 1),
      exchange_times(context, 1),
      training(context, dataset.train,
               training_order(of_data, dataset, run.rank / static_cast<int>(plan.sync.batches_of_node()))),
      test(context, dataset.test, test_order(dataset)),
      activations(context, plan.layout, plan.batch),
      test_activations(context, plan.layout, kEvaluationRows),
      memory(context, run, plan),
      board(context, 1),
      losses(context, plan.steps),
      step_times_ns(context, plan.steps),
      score(context, 1),
      image(context, config.checkpoint_folder.empty() ? 1 : 2 * std::size_t{plan.layout.parameters()}) {
  if (config.rank != 0 || config.publish.empty()) return;
  const std::uint64_t model_number = layout_of(config, shape_of(dataset).sample, 1).fingerprint();
  publisher.emplace(context, gpusock::Endpoint::parse(config.publish), memory.parameters, model_number);
}

NodeState Node::Impl::common_state() const {
  NodeState node = memory.state();
  node.net = context.net();
  node.nodes = config.nodes;
  node.rank = config.rank;
  node.times = exchange_times.data();
  return node;
}

void Node::Impl::linger() const {
  if (observer.await_others) return observer.await_others();
  std::this_thread::sleep_for(kLinger);
}

NodeReport Node::Impl::train(const ProgressSink& progress) {
  NodeReport report;
  report.rank = config.rank;
  report.first_step = first_step;
  report.steps = plan.steps - first_step;
  const auto start = SteadyClock::now();
  const std::uint64_t calls_before = context.stats().host_api_calls;
  launch_residents();
  if (publisher) publisher->start();
  QueuedSteps queued;
  if (first_step == plan.steps) {  // the nodes before had made all steps
    take_leave();
    evaluate(plan.steps, report);
  }
  for (std::uint64_t step = first_step, next = step; step < plan.steps; step = next) {
    const std::uint64_t calls = step == first_step ? context.stats().host_api_calls : 0;
    launch_step(step);
    next = step_after(step);
    publish(next);
    // The first step is traced if any is, so that it has the most launches.
    if (step == first_step) queued.expect(context.stats().host_api_calls - calls);
    queued.add();
    save(next, report);
    if (next == plan.steps) take_leave();
    const std::uint64_t epochs = next / plan.steps_per_epoch - step / plan.steps_per_epoch;
    if (epochs == 0 && !queued.full()) continue;
    for (std::uint64_t ended = 0; ended < epochs; ++ended) evaluate(next, report);
    if (epochs == 0) {
      compute.synchronize();
      check();
    }
    queued.clear();
    if (!progress) continue;
    Progress now = progress_since(start);
    if (!report.accuracies.empty()) now.accuracy = report.accuracies.back();
    progress(now);
  }
  await_residents();
  check();
  if (checkpoints) checkpoints->finish();
  report.train_s = seconds_since(start);
  report.host_api_calls = context.stats().host_api_calls - calls_before;
  finish_common(report);
  finish(report);
  if (publisher) publisher->finish(plan.steps);
  return report;
}

void Node::Impl::evaluate(std::uint64_t step, NodeReport& report) {
  gpusock::launch(context, model.shape(1), wait_for_weights, state(), version_after(step));
  compute.synchronize();  // a stream may not have room for the launches of steps and of the evaluation
  check();
  if (config.rank == 0) {
    score[0] = {};
    model.evaluate(test, memory.weights_of(version_after(step)), test_activations, score.data());
  }
  compute.synchronize();
  check();
  if (config.rank != 0) return;
  report.accuracies.push_back(static_cast<double>(score[0].correct) / static_cast<double>(test.visits()));
  report.test_loss = score[0].loss / static_cast<double>(test.visits());
}

/// No node ends the next step meanwhile: it needs this node. The training goes on when the weights are copied, while
/// they are written.
void Node::Impl::save(std::uint64_t steps, NodeReport& report) {
  if (!checkpoints || steps % config.checkpoint_steps != 0 || steps >= plan.steps) return;
  gpusock::launch(context, model.shape(1), wait_for_weights, state(), version_after(steps));
  compute.synchronize();
  check();
  const auto start = SteadyClock::now();
  const std::size_t floats = memory.parameters;
  gpusock::launch(context, model.shape(kCopyBlocks), copy_floats, memory.weights_of(version_after(steps)), floats,
                  image.data());
  copy_own_states();
  compute.synchronize();
  check();
  if (origin.view != 0 && checkpoints->files().steps().size() > 1) {
    remove_checkpoints_before(config, static_cast<int>(origin.nodes));
  }
  const float *const begin = image.data(), *const middle = begin + floats;
  checkpoints->begin({steps, {begin, middle}, {middle, middle + floats}});
  ++report.checkpoints;
  report.checkpoint_stall_ns += static_cast<std::uint64_t>(1e9 * seconds_since(start));
}

void Node::Impl::copy_states(const float* states, std::size_t begin, std::size_t floats) {
  gpusock::launch(context, model.shape(kCopyBlocks), copy_floats, states, floats,
                  image.data() + memory.parameters + begin);
}

void Node::Impl::publish(std::uint64_t steps) {
  // After the first step, too, since its launches are counted, and followers have weights soon.
  const bool is_due = steps == first_step + 1 || steps == plan.steps || steps % config.publish_steps == 0;
  if (!publisher || !is_due) return;
  gpusock::launch(context, model.shape(1), wait_for_weights, state(), version_after(steps));
  publisher->offer(compute, memory.weights_of(version_after(steps)), steps, memory.failed.data());
}

Progress Node::Impl::progress_since(SteadyClock::time_point start) const {
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
  add_traffic(now);
  return now;
}

void Node::Impl::finish_common(NodeReport& report) const {
  memory.collect(report, first_step);
  executor::ExchangeTimes times{};
  exchange_times.copy_out({&times, 1});
  executor::begin_compute(times, times.ended_ns);  // counts the time after the last kernel, which is exposed
  report.communicating_ns = times.communicating_ns;
  report.exposed_ns = times.exposed_ns;
  collect_links(context, report);
  report.losses.assign(losses.begin() + static_cast<std::ptrdiff_t>(first_step), losses.end());
  if (first_step < plan.steps) report.began_ns = step_times_ns[first_step];
  for (std::uint64_t step = first_step; step < plan.steps; ++step) {
    report.step_times_ns.push_back(step_times_ns[step] - step_times_ns[first_step]);
  }
}

Node::Node(const Config& config, const Dataset& data, LossObserver observer, const HeldViews* before)
    : impl_(config.sync.empty() ? make_scheme_node(config, data, std::move(observer))
                                : make_store_node(config, data, std::move(observer), before)) {}
Node::~Node() = default;

gpusock::Endpoint Node::listen(const gpusock::Endpoint& at) { return impl_->listen(at); }
std::optional<gpusock::Endpoint> Node::publishes_at() const {
  if (!impl_->publisher) return std::nullopt;
  return impl_->publisher->where();
}
void Node::connect(const std::vector<gpusock::Endpoint>& peers) { impl_->connect(peers); }
std::vector<gpusock::Endpoint> Node::exchange(const gpusock::Endpoint& mine) { return impl_->exchange(mine); }
ViewOrigin Node::origin() const { return impl_->origin; }
NodeReport Node::train(const ProgressSink& progress) { return impl_->train(progress); }
HeldTraining Node::held() { return impl_->held(); }
std::vector<float> Node::weights() const { return impl_->memory.final_weights(); }
void Node::request_stop() noexcept { impl_->request_stop(); }

}  // namespace param_sync
