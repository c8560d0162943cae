#include "training/store_node.cuh"

#include "plan/exchange_plan.hpp"
#include "training/pace.cuh"
#include "training/run_settings.hpp"
#include "training/store_checkpoints.hpp"
#include "training/step.cuh"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <tuple>
#include <utility>
#include <variant>

namespace param_sync {
namespace {

#if defined(GPUSOCK_DEVICE_CPU)
constexpr unsigned kThreads = 1;  // threads of a block share one processor
#else
constexpr unsigned kThreads = 256;
#endif

/// Blocks of a kernel that applies gradients, or averages.
constexpr unsigned kLocalBlocks = 4;

std::uint64_t ns_of(double seconds) { return static_cast<std::uint64_t>(seconds * 1e9); }

GroupOptions group_options(const Config& config) {
  GroupOptions options;
  options.connect_timeout_ns = ns_of(config.connect_timeout_s());
  return options;
}

constexpr std::size_t kSettingWords = 2 * std::tuple_size_v<RunSettings>;  // of four bytes, of one rank

}  // namespace

StoreNode::StoreNode(const Config& run, const Dataset& dataset, LossObserver loss_observer,
                     const HeldViews* what_is_left)
    : Impl(run, dataset, std::move(loss_observer)),
      before(what_is_left),
      group(context, run.rank, run.nodes, group_options(run)),
      average(context, plan.sync.local_steps == 0 ? 1 : plan.layout.parameters()),
      changes(context, plan.sync.by_layer ? plan.layout.parameters() : 1),
      words(context, plan.layout.layers.size()),
      blocks(context, plan.layout.layers.size()),
      parts(context, ranges.size()),
      first_parts(context, static_cast<std::size_t>(run.nodes) + 1),
      of_owners(context, static_cast<std::size_t>(run.nodes)),
      withheld(context, chosen_floats()),
      chosen_rows(context, chosen_floats()),
      lags(context, StoreMoves::kLagsMax + 1),
      seen(context, static_cast<std::size_t>(run.nodes) * static_cast<std::size_t>(run.nodes)),
      compared(context, kSettingWords * static_cast<std::size_t>(run.nodes)),
      begins(context, ranges.size()),
      after(context, static_cast<std::size_t>(run.nodes)),
      reached(context, 1),
      step_begun_ns(context, 1) {
  std::vector<std::uint64_t> of_layers;
  of_layers.reserve(plan.layout.layers.size());
  for (const Layer& layer : plan.layout.layers) {
    of_layers.push_back(plan.sync.local_steps == 0 ? layer.blocks() : kLocalBlocks);
  }
  blocks.copy_in(of_layers);
  if (plan.pool) pool.emplace(context, plan);
  if (!config.checkpoint_folder.empty()) checkpoints.emplace(checkpoint_files(config, data));
}

/// The point at which this node is to end, counted in exchanges of this run.
FailHandle StoreNode::fail_handle() {
  const auto is_here = [&](const FailAt& at) { return at.phase != FailPhase::view && at.step >= first_step; };
  const auto at = std::ranges::find_if(config.fail_at, is_here);
  if (at == config.fail_at.end()) return {};
  fails.emplace(context, clock_of(at->step), static_cast<std::uint32_t>(at->phase));
  return fails->handle();
}

StoreNode::~StoreNode() { end_kernels(); }

/// Ends all kernels, which must happen before their memory is freed.
void StoreNode::end_kernels() noexcept {
  end_waits(memory.stop[0]);
  if (is_recorded(memory.failure[0])) context.cancel();
  for (gpusock::Stream* stream : {&moving, &compute}) {
    try {
      stream->synchronize();
    } catch (const gpusock::Error&) {
      // a kernel has faulted: check() has reported it
    }
  }
}

NodeState StoreNode::state() {
  NodeState node = common_state();
  node.timeout_ns = ~std::uint64_t{0};  // the blocks that push and pull have deadlines; if they fail, all waits end
  node.exchanges = words.data();
  node.exchange_count = static_cast<std::int32_t>(words.size());
  return node;
}

/// What the blocks take that push and pull. With local steps beside them they push from memory of their own, and pull
/// averages; and each layer is a communication of its own.
NodeState StoreNode::moving_state() {
  NodeState node = state();
  if (pool) node.gradients = pool->floats.data();
  if (!plan.sync.by_layer) return node;
  node.weights = average.data();
  node.gradients = changes.data();
  node.exchange_count = 1;
  return node;
}

/// What a step's kernels of a layer take: its weights, and its gradients.
NodeState StoreNode::state_of(std::uint64_t step, int layer) {
  NodeState node = state();
  node.weights = weights_of(step, layer);
  node.gradients = memory.gradients_of(plan.sync.exchanges_before(clock_of(step), own(layer)));
  return node;
}

/// Calls `call`, which calls the group or the store, and words its errors.
template <class Call>
void StoreNode::of_group(Call call) {
  try {
    call();
  } catch (const gpusock::Error& error) {
    fail_with(error.what());
  }
}

/// Tells the observer that the node has failed, gives the others time to see why, and throws.
void StoreNode::fail_with(const std::string& why, int unreachable_rank) {
  if (stopping) throw Interrupted();
  const Loss loss;
  if (observer.tell) observer.tell(loss);
  linger();
  const std::string self = "rank " + std::to_string(config.rank) + ": ";
  const std::string message = why.starts_with(self) ? why : self + why;
  if (unreachable_rank >= 0) throw UnreachableNode(message, unreachable_rank);
  throw NodeFailure(message);
}

gpusock::Endpoint StoreNode::listen(const gpusock::Endpoint& at) {
  gpusock::Endpoint found;
  try {
    found = group.listen(at);
  } catch (const gpusock::Error& error) {
    if (stopping) throw Interrupted();
    const Failure failed{FailureKind::listen, config.rank, error.code().value()};
    throw NodeFailure(describe(failed, config.rank, at, plan.layout));
  }
  try {
    if (before == nullptr) make_store(initial_weights(plan.layout, config.seed), {});
  } catch (const gpusock::Error& error) {
    throw NodeFailure("rank " + std::to_string(config.rank) + ": " + error.what());
  }
  return found;
}

void StoreNode::connect(const std::vector<gpusock::Endpoint>& peers) {
  try {
    group.connect(peers);
  } catch (const UnreachableRank& error) {
    fail_with(error.what(), error.rank);
  } catch (const gpusock::Error& error) {
    const bool differs = error.code().value() == EPROTO;
    fail_with(error.what() + std::string(differs ? ". Start all nodes with the same --sync" : ""));
  }
  compare_settings();
  if (before != nullptr) go_on();
  of_group([&] { handle = store->start(); });
}

/// Begins with what the nodes that are left have, in the ranges of the nodes that there are now.
void StoreNode::go_on() {
  gpusock::Mapped<HeldOutline> outlines(context, static_cast<std::size_t>(config.nodes));
  outlines[static_cast<std::size_t>(config.rank)] = outline_of(*before);
  exchange_words(outlines);
  compare_checkpoints({outlines.data(), outlines.size()});
  const std::vector<ChosenView> views = choose_views({outlines.data(), outlines.size()});
  if (views.empty() && !config.resume.empty() && config.resume != "latest") {
    fail_with("no node has a checkpoint of step " + config.resume + " in its " + config.checkpoint_folder);
  }
  if (views.empty() && !config.resume.empty()) return make_store(initial_weights(plan.layout, config.seed), {});
  if (views.empty()) fail_with("all nodes are lost that were there before these have joined: nobody has the weights");
  for (const ChosenView& view : views) {
    if (go_on_from(view, &view == &views.back())) return;
  }
}

/// Throws NodeFailure if nodes would go on from checkpoints of different steps.
void StoreNode::compare_checkpoints(std::span<const HeldOutline> of_nodes) {
  const HeldView* first = nullptr;
  for (const HeldOutline& node : of_nodes) {
    for (const HeldView& view : node.views) {
      if (view.view != kCheckpointView) continue;
      if (first == nullptr) first = &view;
      if (view.first_step == first->first_step && view.nodes == first->nodes) continue;
      const auto said = [](const HeldView& of) {
        return "step " + std::to_string(of.first_step) + " of " + std::to_string(of.nodes) + " nodes";
      };
      fail_with("nodes have different checkpoints, of " + said(*first) + " and of " + said(view) +
                ": give --resume STEP, with a step that all have");
    }
  }
}

/// Returns false if the nodes do not have all weights of the view, and there is another one.
bool StoreNode::go_on_from(const ChosenView& chosen, bool is_last) {
  const std::vector<StoreRange> old_ranges = store_ranges(plan.layout, chosen.nodes);
  std::vector<std::size_t> floats;
  floats.reserve(old_ranges.size());
  for (const StoreRange& range : old_ranges) floats.push_back(range.parameters.size());
  std::span<const HeldRange> own_part;
  for (const HeldTraining& held : *before) {
    if (held.view == chosen.view) own_part = held.ranges;
  }
  RecoveredRanges left;
  bool some_are_missing = false;  // the same on all nodes
  of_group([&] {
    try {
      left = recover(group, context, floats, own_part, ns_of(config.timeout_s));
    } catch (const gpusock::Error& error) {
      some_are_missing = error.code().value() == ENODATA;
      if (!some_are_missing || (is_last && chosen.view != kCheckpointView)) throw;
    }
  });
  if (some_are_missing && is_last && chosen.view == kCheckpointView) {
    fail_with("the checkpoint of step " + std::to_string(chosen.first_step) + " was written by " +
              std::to_string(chosen.nodes) +
              " nodes, and the files of some of them are not here: give --resume STEP, with an older step, or remove "
              "them to begin anew");
  }
  if (some_are_missing) return false;
  static_assert(Sgd::kStateFloats == 1);  // so a range of states is one of weights
  std::vector<float> weights(memory.parameters), states(memory.parameters);
  for (std::size_t i = 0; i < old_ranges.size(); ++i) {
    std::ranges::copy(left.weights[i], weights.begin() + old_ranges[i].parameters.begin);
    std::ranges::copy(left.states[i], states.begin() + old_ranges[i].parameters.begin);
  }
  origin = chosen.after(left.clock);
  first_step = plan.step_after(origin.step, static_cast<int>(origin.nodes));
  plan.sync.steps = plan.steps - first_step;
  memory.weights.copy_in(weights);
  make_store(weights, states);
  return true;
}

/// All nodes get each other's element. An operation of the group that waits.
template <class T>
void StoreNode::exchange_words(gpusock::Mapped<T>& all) {
  static_assert(sizeof(T) % sizeof(std::int32_t) == 0);
  const std::size_t numbers = all.size() * sizeof(T) / sizeof(std::int32_t);
  of_group([&] {
    group.wait(group.all_gather({all.data(), numbers, DataType::int32}, ns_of(config.connect_timeout_s())));
  });
}

std::vector<gpusock::Endpoint> StoreNode::exchange(const gpusock::Endpoint& mine) {
  gpusock::Mapped<gpusock::ResolvedEndpoint> addresses(context, static_cast<std::size_t>(config.nodes));
  addresses[static_cast<std::size_t>(config.rank)] = mine;
  exchange_words(addresses);
  std::vector<gpusock::Endpoint> all;
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) all.push_back({addresses[rank], {}});
  return all;
}

HeldTraining StoreNode::held() {
  context.cancel();  // nobody needs this node's connections any more
  end_kernels();
  HeldTraining held{0, config.nodes, first_step, origin, {}};
  if (store == nullptr || config.replicas == 1) return held;
  held.ranges = store->held();
  return held;
}

/// Throws NodeFailure if another rank was started with other settings.
void StoreNode::compare_settings() {
  // A node with --resume tells the others what it has, and has to know that they do so, too.
  const std::uint64_t first = before == nullptr ? first_step : 1;
  const RunSettings own = run_settings(config, data, plan, make_exchange_plan(config, plan.layout), first);
  const auto of_rank = [&](int rank) { return compared.data() + kSettingWords * static_cast<std::size_t>(rank); };
  std::memcpy(of_rank(config.rank), own.data(), sizeof own);
  of_group([&] {
    group.wait(group.all_gather({compared.data(), compared.size()}, ns_of(config.connect_timeout_s())));
  });
  for (int rank = 0; rank < config.nodes; ++rank) {
    RunSettings theirs;
    std::memcpy(theirs.data(), of_rank(rank), sizeof theirs);
    const auto [mine, other] = std::mismatch(own.begin(), own.end(), theirs.begin());
    if (mine == own.end()) continue;
    Failure failure{FailureKind::mismatch, rank};
    failure.field = static_cast<RunSetting>(mine - own.begin());
    failure.ours = *mine;
    failure.theirs = *other;
    throw NodeFailure(describe(failure, config.rank, {}, plan.layout));
  }
}

/// Makes the store, and notes which rank owns what. Memory is made before any node has kernels that wait for others: a
/// GPU makes none while such a kernel of another node of this process runs.
void StoreNode::make_store(const std::vector<float>& weights, const std::vector<float>& states) {
  RecoveredRanges initial;
  for (const auto& [all, by_range] : {std::pair{&weights, &initial.weights}, std::pair{&states, &initial.states}}) {
    for (const StoreRange& range : ranges) {
      if (all->empty()) break;
      by_range->emplace_back(all->begin() + range.parameters.begin, all->begin() + range.parameters.end);
    }
  }
  StoreOptions options;
  options.clock = plan.sync.clock;
  options.update = {plan.owners.learning_rate, plan.owners.momentum, plan.owners.scale, plan.owners.nesterov};
  options.correction = plan.correction;
  options.push_format = plan.codec.push;
  options.pull_format = plan.codec.pull;
  if (plan.codec.chooses()) options.rows_max = plan.layout.parameters();  // of a range at most all
  options.tree_depth = plan.sync.tree_depth;
  options.in_host_memory = plan.pool.has_value();
  options.replicas = std::min(config.replicas, config.nodes);
  options.history_events = history_events(config, plan);
  store = std::make_unique<Store>(group, initial, options);
  std::vector<StorePart> by_owner;
  by_owner.reserve(ranges.size());
  std::vector<std::uint32_t> first{0};
  for (int owner = 0; owner < config.nodes; ++owner) {
    for (std::uint32_t number = 0; number < ranges.size(); ++number) {
      const StoreRange& range = ranges[number];
      if (range.owner != owner) continue;
      const std::uint32_t floats = range.parameters.size();
      const std::uint32_t pushed = plan.codec.share == 0 ? 0 : plan.codec.floats_of_push(floats);
      const std::uint64_t exchanges = plan.sync.exchanges_before(plan.sync.steps, own(range.layer));
      by_owner.push_back(
          {number, range.layer, range.parameters.begin, floats, pushed, exchanges, range.parameters.begin});
      if (pool) pool->place(plan, by_owner.back());
    }
    first.push_back(static_cast<std::uint32_t>(by_owner.size()));
  }
  std::vector<std::uint64_t> first_parameters;
  first_parameters.reserve(ranges.size());
  for (const StoreRange& range : ranges) first_parameters.push_back(range.parameters.begin);
  begins.copy_in(first_parameters);
  parts.copy_in(by_owner);
  first_parts.copy_in(first);
}

void StoreNode::launch_residents() {
  StoreMoves moves;
  moves.store = handle;
  moves.parts = parts.data();
  moves.first = first_parts.data();
  moves.blocks = blocks.data();
  moves.of_owners = of_owners.data();
  moves.bytes_per_ns = plan.codec.bytes_per_s * 1e-9;
  moves.choosing.choice = plan.codec.takes_random ? Choice::random : Choice::largest;
  moves.choosing.keeps_others = plan.codec.keeps_others;
  moves.withheld = {withheld.data(), chosen_rows.data()};
  moves.lags = lags.data();
  moves.seen = seen.data();
  moves.exchanges = plan.sync.exchanges();
  moves.by_layer = plan.sync.by_layer;
  moves.versions = memory.versions;
  moves.parameters = memory.parameters;
  moves.pull_every = plan.sync.pull_every;
  moves.by_tree = plan.sync.tree_depth != 0;
  moves.timeout_ns = ns_of(config.timeout_s);
  moves.failing = fail_handle();
  const auto owners = static_cast<unsigned>(config.nodes);
  const auto shape = [&](unsigned grid) -> gpusock::LaunchShape {
    return {.grid = grid, .block = kThreads, .stream = &moving, .blocks_share_threads = true};
  };
  if (plan.sync.drops_late()) {
    LateMoves late{begins.data(), after.data(), static_cast<std::uint32_t>(ranges.size()), plan.steps, reached.data()};
    gpusock::launch(context, shape(1), exchange_dropping_late, state(), moves, late);
    return;
  }
  if (pool) return launch_exchange_in_pool(shape(owners + 1), moves);
  gpusock::launch(context, shape(owners), exchange_through_store, moving_state(), moves);
}

LayerParameters StoreNode::parameters_of(int layer) const {
  return {layer, plan.layout[layer].offset, plan.layout[layer].parameters()};
}

void StoreNode::launch_step(std::uint64_t step) {
  if (pool) return launch_step_in_pool(step);
  const SamplesView samples = training.from(step * plan.batch);
  if (config.step_ms != 0) {
    gpusock::launch(context, model.shape(1), begin_pace, state(), version_of(step, 0),
                    memory.step_waited_ns.data() + step, step_begun_ns.data());
  }
  model.gather(samples, plan.batch, activations);
  for (int layer = 0; layer < plan.layout.size(); ++layer) launch_forward(layer, step);
  model.loss(samples, plan.batch, activations, plan.rate_share(step), losses.data(), board.data(), step,
             step_times_ns.data());
  if (config.step_ms != 0) {
    const double batches = static_cast<double>(plan.sync.batches_of_node());
    const double delay = batches * delays.time_of(config.seed, config.rank, config.nodes, step);
    gpusock::launch(context, model.shape(1), end_pace, state(), ns_of(config.step_ms * delay / 1e3),
                    step_begun_ns.data());
  }
  for (int layer = plan.layout.size() - 1; layer >= 0; --layer) {
    // The last kernel that reads the layer's weights comes before its gradients are handed over (L9).
    if (layer > 0) {
      model.backward_input(layer, weights_of(step, layer), plan.batch, activations);
    }
    launch_backward(layer, step);
  }
  if (plan.sync.by_layer) take_averages(step);
}

/// With a clock that drops late pushes only the weights say which step comes next. So the host waits for each step: a
/// kernel that is launched takes the samples of its step.
std::uint64_t StoreNode::step_after(std::uint64_t step) {
  if (!plan.sync.drops_late()) return step + 1;
  gpusock::launch(context, model.shape(1), wait_for_weights, state(), version_after(step + 1));
  compute.synchronize();
  check();
  const auto [next, at_ns] = reached[0];
  for (std::uint64_t missed = step + 1; missed < next; ++missed) {
    losses[missed] = std::numeric_limits<float>::quiet_NaN();
    step_times_ns[missed] = at_ns;
  }
  left_out += next - (step + 1);
  return next;
}

/// What the owner of a range keeps changes only when all nodes have pushed for the next step.
void StoreNode::copy_own_states() {
  for (std::size_t range = 0; range < ranges.size(); ++range) {
    const float* const states = store->states(range);
    if (states != nullptr) copy_states(states, ranges[range].parameters.begin, ranges[range].parameters.size());
  }
}

/// Takes the averages that come before the next step. After the last step these are all.
void StoreNode::take_averages(std::uint64_t step) {
  const bool is_last = step + 1 == plan.steps;
  for (int layer = 0; layer < plan.layout.size(); ++layer) {
    if (!is_last && !plan.sync.begins_alone(step + 1, own(layer))) continue;
    const std::uint64_t version = is_last ? plan.sync.exchanges_before(plan.steps, own(layer))
                                          : plan.sync.version_of(step + 1, own(layer));
    gpusock::launch(context, model.shape(kLocalBlocks), take_average, state(), average.data(), parameters_of(layer),
                    version, plan.sync.overlap != 0 && !is_last, memory.step_waited_ns.data() + step);
  }
}

void StoreNode::launch_forward(int layer, std::uint64_t step) {
  with_layer(layer, layer, [&]<class Kind>(const NodeLayer<Kind>& at) {
    gpusock::launch(context, model.shape(at.kind.forward_blocks(plan.batch)), forward_when_ready<Kind>,
                    state_of(step, layer), at, version_of(step, layer), activations.input(layer), plan.batch,
                    activations.output(layer), memory.step_waited_ns.data() + step);
  });
  const bool keeps = plan.sync.by_layer ? step == 0 : plan.sync.begins_alone(step, own(layer));
  if (!keeps) return;
  gpusock::launch(context, model.shape(kLocalBlocks), keep_average, memory.weights.data(), average.data(),
                  parameters_of(layer));
}

void StoreNode::launch_backward(int layer, std::uint64_t step) {
  const bool is_first = layer + 1 == plan.layout.size();
  if (plan.sync.local_steps == 0) {
    with_layer(layer, layer, [&]<class Kind>(const NodeLayer<Kind>& at) {
      gpusock::launch(context, model.shape(at.kind.blocks()), backward_to_store<Kind>, state_of(step, layer), at,
                      activations.input(layer), activations.output_delta(layer), plan.batch, is_first);
    });
    return;
  }
  model.backward_parameters(layer, weights_of(step, layer), plan.batch, activations, memory.gradients.data());
  const auto apply = [&]<class Kind>(const Kind& update) {
    gpusock::launch(context, model.shape(kLocalBlocks), apply_own<Kind>, state(), update, parameters_of(layer));
  };
  std::visit(apply, plan.update);
  if (!plan.sync.exchanges_after(step, own(layer))) return;
  NodeState node = state();
  node.gradients = moving_state().gradients;
  gpusock::launch(context, model.shape(kLocalBlocks), hand_over_change, node, average.data(), parameters_of(layer),
                  is_first || plan.sync.by_layer);
}

/// A rank whose store ends is lost for the others: so all wait until each has its last weights.
void StoreNode::take_leave() {
  moving.synchronize();
  check();
  try {
    of_group([&] { group.wait(group.barrier(ns_of(config.timeout_s))); });
  } catch (const NodeFailure&) {
    // This node has all weights. With replicas it is no failure that another one is lost after the last step.
    if (config.replicas == 1) throw;
    return;
  }
  of_group([&] { store->stop(); });
}

void StoreNode::check() {
  if (!stopping && is_recorded(memory.failure[0])) fail_with(reason());
  if (stopping) throw Interrupted();
}

/// Why a kernel has failed. If a call of the store has, the store knows more.
std::string StoreNode::reason() {
  const Failure& failure = memory.failure[0].what;
  try {
    if (store) store->check();
  } catch (const gpusock::Error& error) {
    return error.what();
  }
  return describe(failure, config.rank, {}, plan.layout);
}

void StoreNode::add_traffic(Progress& now) const {
  std::uint64_t pushed = 0, pulled = 0;  // words
  for (const StoreRange& range : ranges) {
    pushed += plan.codec.words_of_push(range.parameters.size());
    pulled += codec::words_of(plan.codec.pull, range.parameters.size());
  }
  const std::uint64_t steps = std::max<std::uint64_t>(1, plan.sync.local_steps);
  now.pushed_per_step = pushed * sizeof(std::uint32_t) / steps;
  now.dense_per_step = std::uint64_t{memory.parameters} * sizeof(float) / steps;
  now.pulled_per_step = pulled * sizeof(std::uint32_t) / steps / plan.sync.pull_every;
  if (plan.codec.bytes_per_s != 0 && now.steps > now.first_step) {
    const double all = plan.codec.bytes_per_s * now.train_s / static_cast<double>(now.steps - now.first_step);
    now.pushed_per_step = std::min(now.dense_per_step, static_cast<std::uint64_t>(all));
  }
}

void StoreNode::finish(NodeReport& report) {
  report.layers.resize(words.size());
  const std::vector<StoreTraffic> moved = store->traffic();
  for (std::size_t range = 0; range < moved.size(); ++range) {
    LayerTraffic& layer = report.layers[static_cast<std::size_t>(ranges[range].layer)];
    layer.pushed_bytes += moved[range].pushed_bytes;
    layer.pulled_bytes += moved[range].pulled_bytes;
  }
  std::vector<std::uint64_t> counted(lags.size());
  lags.copy_out(counted);
  while (!counted.empty() && counted.back() == 0) counted.pop_back();
  report.staleness = counted;
  if (pool) pool->collect(report);
  if (origin.view == kCheckpointView) report.resumed.push_back({origin.step, static_cast<int>(origin.nodes)});
  if (plan.sync.drops_late()) {
    report.pushes = report.steps - left_out;
    report.computed_batches = report.pushes * plan.sync.batches_of_node();
  }
  std::vector<OwnersLags> by_owner(of_owners.size());
  of_owners.copy_out(by_owner);
  for (const OwnersLags& owner : by_owner) {
    report.staleness_sum += owner.sum;
    report.staleness_max = std::max(report.staleness_max, owner.most);
  }
  if (!config.history_file.empty()) report.history = to_json_lines(config.rank, store->history());
}

void StoreNode::request_stop() noexcept {
  stopping = true;
  end_waits(memory.stop[0]);
  context.cancel();
}

std::unique_ptr<Node::Impl> make_store_node(const Config& config, const Dataset& data, LossObserver observer,
                                            const HeldViews* before) {
  return std::make_unique<StoreNode>(config, data, std::move(observer), before);
}

}  // namespace param_sync
