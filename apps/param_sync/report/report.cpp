#include "report/report.hpp"

#include "gpusock/gpusock.hpp"
#include "param_sync/schedule/schemes.hpp"
#include "plan/sync.hpp"
#include "program/run.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

namespace param_sync {
namespace {

double megabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

LayerTraffic layer_total(const std::vector<NodeReport>& nodes, int layer) {
  LayerTraffic total;
  for (const NodeReport& node : nodes) {
    const LayerTraffic& part = node.layers.at(static_cast<std::size_t>(layer));
    total.pushed_bytes += part.pushed_bytes;
    total.pulled_bytes += part.pulled_bytes;
    total.gathered_bytes += part.gathered_bytes;
    total.published_bytes += part.published_bytes;
    total.in_place_bytes += part.in_place_bytes;
  }
  return total;
}

LayerTraffic total_traffic(const std::vector<NodeReport>& nodes) {
  LayerTraffic all;
  for (std::size_t layer = 0; layer < nodes.front().layers.size(); ++layer) {
    const LayerTraffic part = layer_total(nodes, static_cast<int>(layer));
    all.pushed_bytes += part.pushed_bytes;
    all.published_bytes += part.published_bytes;
    all.in_place_bytes += part.in_place_bytes;
  }
  return all;
}

std::uint64_t total(const std::vector<NodeReport>& nodes, std::uint64_t NodeReport::*value) {
  std::uint64_t sum = 0;
  for (const NodeReport& node : nodes) sum += node.*value;
  return sum;
}

double seconds_a_node(const std::vector<NodeReport>& nodes, std::uint64_t NodeReport::*value_ns) {
  return static_cast<double>(total(nodes, value_ns)) / 1e9 / static_cast<double>(nodes.size());
}

/// Mean of one node in one step.
double per_step(const std::vector<NodeReport>& nodes, std::uint64_t NodeReport::*value) {
  const std::uint64_t steps = total(nodes, &NodeReport::steps);
  return steps == 0 ? 0 : static_cast<double>(total(nodes, value)) / static_cast<double>(steps);
}

/// True if layers are exchanged, each by its scheme.
bool has_schemes(const Config& config) { return !config.serial && config.sync.empty(); }

std::string traffic_table(const RunReport& run) {
  const bool has_column = has_schemes(run.config);
  const std::vector<LayerScheme> schemes = has_column ? run.schemes() : std::vector<LayerScheme>{};
  std::string text = fmt::format("{:<16}{:>12}{:>14}{:>14}{}\n", "layer", "parameters", "pushed MB", "pulled MB",
                                 has_column ? "  scheme" : "");
  for (int i = 0; i < run.layout.size(); ++i) {
    const Layer& layer = run.layout[i];
    const LayerTraffic traffic = layer_total(run.nodes, i);
    text += fmt::format("{:<16}{:>12}{:>14.2f}{:>14.2f}", layer.name(), layer.parameters(),
                        megabytes(traffic.pushed_bytes), megabytes(traffic.pulled_bytes));
    if (has_column) text += "  " + schemes[static_cast<std::size_t>(i)].scheme;
    text += "\n";
  }
  for (int i = 0; has_column && i < run.layout.size(); ++i) {
    const LayerScheme& chosen = schemes[static_cast<std::size_t>(i)];
    if (!chosen.why.empty()) {
      text += fmt::format("{}: {} ({})\n", run.layout[i].name(), chosen.scheme, chosen.why);
    }
  }
  return text;
}

}  // namespace

namespace {

/// Names the data set by its folder, and the model by its name, if it is no perceptron, and the widths of its layers.
std::string subject(const RunReport& run) {
  const std::filesystem::path folder = run.config.data;
  std::string text = fmt::format("data {}, model {}{}",
                                 (folder.has_filename() ? folder : folder.parent_path()).filename().string(),
                                 run.config.model == kMlp ? "" : run.config.model + ": ", run.layout[0].inputs());
  for (const Layer& layer : run.layout.layers) text += fmt::format(" x {}", layer.outputs());
  return text;
}

std::string division_of_work(const Config& config) {
  const SyncPlan sync = sync_of(config.sync);
  if (config.serial && sync.averages()) {
    return fmt::format("one process trained the models of {} nodes, {} samples a step for each, and {}", config.nodes,
                       config.batch, config.outer.empty() ? "averaged them" : "averaged their changes");
  }
  if (config.serial && sync.batches_of_node() != 1) {
    return fmt::format(
        "one process computed the gradients of {} nodes, in groups of {} with the same {} samples a step, in "
        "virtual time",
        config.nodes, sync.batches_of_node(), sync.of_groups(config).batch);
  }
  if (config.serial && !sync.is_deterministic()) {
    return fmt::format("one process computed the gradients of {} nodes, {} samples a step for each, in virtual time",
                       config.nodes, config.batch);
  }
  if (config.serial) {
    return fmt::format("one process computed the gradients of {} nodes, {} samples a step for each, and summed them",
                       config.nodes, config.batch);
  }
  if (config.nodes == 1) return fmt::format("one node trained on {} samples a step, alone", config.batch);
  const std::string samples = fmt::format("on its own {} samples a step", config.batch);
  if (sync.by_layer) {
    return fmt::format("{} nodes: each trained {}, and all {} layer by layer, each layer after {} steps", config.nodes,
                       samples, config.outer.empty() ? "averaged their weights" : "averaged their changes",
                       sync.local_steps);
  }
  if (sync.averages()) {
    return fmt::format("{} nodes: each trained {}, and all {} after {} steps", config.nodes, samples,
                       config.outer.empty() ? "averaged their weights" : "averaged their changes", sync.local_steps);
  }
  if (!config.sync.empty()) {
    return fmt::format("{} nodes: each computed gradients {}, pushed them to a store, and pulled weights from it",
                       config.nodes, samples);
  }
  if (schedule::moves(config.scheme, schedule::Moves::factors_to_all)) {
    return fmt::format(
        "{} nodes: each sent the factors of its gradients {} to all others, and made the sum of all of them",
        config.nodes, samples);
  }
  if (schedule::moves(config.scheme, schedule::Moves::factors_to_owner)) {
    return fmt::format(
        "{} nodes: each sent the factors of its gradients {} to each layer's owner, which made weights of "
        "them",
        config.nodes, samples);
  }
  if (config.scheme.find(',') != std::string::npos || config.scheme == kHybridScheme || config.scheme == kAutoScheme) {
    return fmt::format("{} nodes: each computed {}; each layer has a scheme of its own", config.nodes, samples);
  }
  if (config.scheme == kDefaultScheme) {
    return fmt::format(
        "{0} nodes: each computed gradients on its own {1} samples a step, pushed them to the node that owns\n"
        "the weights, summed those for its own 1/{0} of the weights, and pulled the others' new weights",
        config.nodes, config.batch);
  }
  return fmt::format("{} nodes: each computed gradients {}; {} summed them and spread the result", config.nodes,
                     samples, config.scheme);
}

/// Says how much of the budget was sent; empty without a budget.
std::string budget_line(const RunReport& run) {
  if (run.config.budget_bytes == 0) return "";
  const LayerTraffic all = total_traffic(run.nodes);
  const auto steps = static_cast<double>(total(run.nodes, &NodeReport::steps));
  return fmt::format("budget {} bytes a step of a node, {:.0f} sent\n", run.config.budget_bytes,
                     static_cast<double>(all.pushed_bytes + all.published_bytes) / steps);
}

/// The longest lag of a pull.
std::uint64_t staleness_of(const std::vector<NodeReport>& nodes) {
  std::uint64_t most = 0;
  for (const NodeReport& node : nodes) most = std::max(most, node.staleness_max);
  return most;
}

/// The share of their time that steps have spent on what was counted by step. A step lasts from the loss before to its
/// own; the first one, and those that an evaluation comes before, do not count.
double share_of_steps(const RunReport& run, std::vector<std::uint64_t> NodeReport::*spent_ns) {
  double spent = 0, all = 0;
  for (const NodeReport& node : run.nodes) {
    const std::size_t steps = std::min((node.*spent_ns).size(), node.step_times_ns.size());
    const std::size_t epoch_steps = std::max<std::size_t>(1, steps / run.config.epochs);
    for (std::size_t step = 1; step < steps; ++step) {
      if (step % epoch_steps == 0) continue;
      spent += static_cast<double>((node.*spent_ns)[step]);
      all += static_cast<double>(node.step_times_ns[step] - node.step_times_ns[step - 1]);
    }
  }
  return all == 0 ? 0 : spent / all;
}

/// Bytes of sums that a step of a node passes on between bands of weights: each sum is written, and read again.
std::uint64_t passed_bytes(const RunReport& run) {
  std::uint64_t sums = 0;
  for (int i = 0; i < run.layout.size(); ++i) {
    sums += run.layout[i].passed_sums(run.config.batch, i == 0 ? nullptr : &run.layout[i - 1]);
  }
  return 2 * sizeof(float) * sums;
}

/// Says what a pool has cost; empty without one.
std::string pool_line(const RunReport& run) {
  if (run.config.device_pool_bytes == 0) return "";
  return fmt::format(
      "device pool {} bytes: weights of {:.2f} MB staged in a step of a node, in {:.1f} % of the time; steps "
      "waited for the pool {:.1f} % of it\n",
      run.config.device_pool_bytes, run.staged_per_step() / 1e6, 100 * run.copying_share(), 100 * run.stall_share());
}

/// Names the node that the others have waited for; empty if none has cost a twentieth of the time.
std::string slowest_line(const RunReport& run) {
  const HoldUp slowest = run.hold_up();
  const double all_s = run.nodes.front().train_s;
  if (slowest.rank < 0 || slowest.held < std::max(0.05 * all_s, 0.1)) return "";
  const bool changed = !run.nodes.front().nodes_after.empty();
  return fmt::format("slowest: rank {}{} held the others up for {:.1f} s of {:.1f} s, in {:.0f} % of the steps\n",
                     slowest.rank, changed ? " of those that are left" : "", slowest.held, all_s,
                     100 * share_of_steps(run.hold_ups(), slowest.rank));
}

std::string staleness_line(const RunReport& run) {
  if (run.config.sync.empty()) return "staleness 0 steps (BSP)\n";
  const SyncPlan sync = sync_of(run.config.sync);
  if (sync.averages()) return fmt::format("staleness 0 averages ({})\n", run.config.sync);
  if (sync.drops_late() && !run.config.serial) {
    return fmt::format("staleness 0 steps ({}); nodes computed {} of {} steps, and were late for the others\n",
                       run.config.sync, total(run.nodes, &NodeReport::pushes), total(run.nodes, &NodeReport::steps));
  }
  if (sync.drops_late()) {
    return fmt::format("staleness 0 steps ({}); {} of {} gradients came late and were dropped\n", run.config.sync,
                       run.nodes.front().dropped_pushes, run.nodes.front().pushes);
  }
  double pulls = 0;
  for (const NodeReport& node : run.nodes) {
    for (const std::uint64_t count : node.staleness) pulls += static_cast<double>(count);
  }
  const double mean = pulls == 0 ? 0 : static_cast<double>(total(run.nodes, &NodeReport::staleness_sum)) / pulls;
  return fmt::format("staleness {:.2f} {} on average, {} at most ({})\n", mean,
                     sync.local_steps == 0 ? "steps" : "pushes", staleness_of(run.nodes), run.config.sync);
}

/// True if the last loss is no number, or too large to be one.
bool diverged(const NodeReport& node, const SyncPlan& sync) {
  if (!sync.drops_late()) return !node.losses.empty() && !std::isfinite(node.losses.back());
  const auto numbers = std::ranges::count_if(node.losses, [](float loss) { return std::isfinite(loss); });
  return static_cast<std::uint64_t>(numbers) < node.pushes;  // steps that were left out have no loss
}

/// Says which share of the gradients the computing kernels wrote into the rings; empty if no gradients were sent.
std::string in_place_line(const RunReport& run) {
  const LayerTraffic all = total_traffic(run.nodes);
  if (!has_schemes(run.config) || all.pushed_bytes == 0) return "";
  return fmt::format("pushed without a copy {:.1f} %\n",
                     100 * static_cast<double>(all.in_place_bytes) / static_cast<double>(all.pushed_bytes));
}

}  // namespace

double RunReport::samples_per_s() const {
  double longest_s = 0;
  for (const NodeReport& node : nodes) longest_s = std::max(longest_s, node.train_s);
  if (longest_s == 0) return 0;
  if (!config.serial && sync_of(config.sync).drops_late()) {
    return static_cast<double>(total(nodes, &NodeReport::computed_batches) * config.batch) / longest_s;
  }
  return static_cast<double>(nodes.front().steps * config.batch) * config.nodes / longest_s;
}

double RunReport::hidden_share() const {
  const auto communicating = static_cast<double>(total(nodes, &NodeReport::communicating_ns));
  const auto exposed = static_cast<double>(total(nodes, &NodeReport::exposed_ns));
  return communicating == 0 ? 1 : std::max(0.0, 1 - exposed / communicating);
}

double RunReport::staged_per_step() const { return per_step(nodes, &NodeReport::staged_bytes); }
double RunReport::stall_share() const { return share_of_steps(*this, &NodeReport::step_stalled_ns); }
double RunReport::copying_share() const { return share_of_steps(*this, &NodeReport::step_copying_ns); }

std::vector<float> RunReport::losses() const {
  std::vector<float> mean(nodes.front().losses.size());
  const SyncPlan sync = sync_of(config.sync);
  // Of nodes with the same samples one loss counts. Nodes may leave steps out; else a loss that is no number counts.
  const std::size_t alike = nodes.size() == 1 ? 1 : static_cast<std::size_t>(sync.batches_of_node());
  const auto is_there = [&](float loss) { return !sync.drops_late() || !std::isnan(loss); };
  for (std::size_t step = 0; step < mean.size(); ++step) {
    double sum = 0;
    std::size_t computed = 0;
    for (std::size_t first = 0; first < nodes.size(); first += alike) {
      const auto last = nodes.begin() + static_cast<std::ptrdiff_t>(std::min(first + alike, nodes.size()));
      const auto node = std::find_if(nodes.begin() + static_cast<std::ptrdiff_t>(first), last,
                                     [&](const NodeReport& one) { return is_there(one.losses.at(step)); });
      if (node == last) continue;
      sum += node->losses.at(step);
      ++computed;
    }
    mean[step] = static_cast<float>(sum / static_cast<double>(computed));  // none: NaN
  }
  return mean;
}

std::vector<double> RunReport::waited_s() const {
  std::vector<double> mean(nodes.front().losses.size());
  for (const NodeReport& node : nodes) {
    for (std::size_t step = 0; step < std::min(mean.size(), node.step_waited_ns.size()); ++step) {
      mean[step] += static_cast<double>(node.step_waited_ns[step]) / 1e9 / static_cast<double>(nodes.size());
    }
  }
  return mean;
}

std::vector<HoldUp> RunReport::hold_ups() const {
  const std::size_t steps = nodes.front().losses.size();
  const auto has_waits = [&](const NodeReport& node) { return node.step_waited_ns.size() == steps; };
  if (nodes.size() < 2 || !std::ranges::all_of(nodes, has_waits)) return {};
  std::vector<HoldUp> all;
  std::vector<double> waited(nodes.size());
  for (std::size_t step = 0; step < steps; ++step) {
    std::ranges::transform(nodes, waited.begin(), [&](const NodeReport& node) {
      return static_cast<double>(node.step_waited_ns[step]) / 1e9;
    });
    all.push_back(hold_up_of(waited));
  }
  return all;
}

HoldUp RunReport::hold_up() const {
  if (hold_ups().empty()) return {};
  std::vector<double> waited;
  for (const NodeReport& node : nodes) {
    waited.push_back(std::accumulate(node.step_waited_ns.begin(), node.step_waited_ns.end(), 0.0) / 1e9);
  }
  return hold_up_of(waited);
}

bool RunReport::same_weights() const {
  return std::all_of(nodes.begin(), nodes.end(),
                     [&](const NodeReport& node) { return node.weights_hash == nodes.front().weights_hash; });
}

std::string RunReport::summary() const {
  const NodeReport& first = nodes.front();
  std::string text = fmt::format("{}, {} parameters\n", subject(*this), layout.parameters());
  text += fmt::format("{}\n", division_of_work(config));
  if (!first.accuracies.empty()) {
    text += fmt::format("test accuracy {:.2f} %   test loss {:.4f}   ", 100 * first.accuracies.back(), first.test_loss);
  }
  text += fmt::format("{:.0f} samples/s   {} steps in {:.1f} s on {} node(s), {} device\n", samples_per_s(),
                      first.steps, first.train_s, config.nodes, device);
  for (const LostNode& lost : first.lost) {
    text += fmt::format("{} was lost after step {}: {} node(s) went on\n",
                        lost.rank < 0 ? "a node" : fmt::format("rank {}", lost.rank), lost.step, lost.nodes);
  }
  for (const JoinedNode& joined : first.joined) {
    text += fmt::format("{} joined after step {}: {} node(s) went on\n",
                        joined.rank < 0 ? "a node" : fmt::format("rank {}", joined.rank), joined.step, joined.nodes);
  }
  if (!first.resumed.empty()) {
    text += fmt::format("went on from the checkpoint of step {} of {} node(s)\n", first.resumed[0].step,
                        first.resumed[0].nodes);
  } else if (first.first_step != 0 && first.nodes_after.empty()) {
    text += fmt::format("went on from the checkpoint of step {}\n", first.first_step);
  }
  if (diverged(first, sync_of(config.sync))) {
    text += "the training diverged: its loss is no number any more; lower --lr\n";
  }
  text += traffic_table(*this);
  if (!config.serial) {
    text += fmt::format(
        "communication hidden behind compute {:.0f} %  (of {:.2f} s a node; in {:.2f} s no kernel computed)\n",
        100 * hidden_share(), seconds_a_node(nodes, &NodeReport::communicating_ns),
        seconds_a_node(nodes, &NodeReport::exposed_ns));
  }
  if (!config.serial || !config.sync.empty()) text += slowest_line(*this);
  text += staleness_line(*this);
  if (!config.serial) {
    text += in_place_line(*this);
    text += budget_line(*this);
    text += pool_line(*this);
  }
  text += fmt::format("in a step of a node: {:.1f} host API calls, {:.1f} proxy steps, {:.1f} proxy wake-ups\n",
                      per_step(nodes, &NodeReport::host_api_calls), per_step(nodes, &NodeReport::proxy_steps),
                      per_step(nodes, &NodeReport::proxy_wakeups));
  text += fmt::format("bytes sent on links: p2p {:.2f} MB, tcp {:.2f} MB",
                      megabytes(total(nodes, &NodeReport::p2p_tx_bytes)),
                      megabytes(total(nodes, &NodeReport::tcp_tx_bytes)));
  const std::uint64_t verbs = total(nodes, &NodeReport::verbs_tx_bytes),
                      fabric = total(nodes, &NodeReport::fabric_tx_bytes);
  if (verbs != 0) text += fmt::format(", verbs {:.2f} MB", megabytes(verbs));
  if (fabric != 0) text += fmt::format(", fabric {:.2f} MB", megabytes(fabric));
  text += "\n";
  return text + fmt::format("weights {:016x}{}\n", first.weights_hash,
                            nodes.size() == 1 ? ""
                            : same_weights()  ? "  (the same on all nodes)"
                                              : "  DIFFERENT ON OTHER NODES");
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LayerTraffic, pushed_bytes, pulled_bytes, gathered_bytes, published_bytes,
                                   in_place_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LostNode, rank, step, nodes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(JoinedNode, rank, step, nodes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodesAfter, step, nodes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeCounters, rank, train_s, first_step, steps, layers, communicating_ns, exposed_ns,
                                   step_waited_ns, step_times_ns, device_bytes, staged_bytes, step_copying_ns,
                                   step_stalled_ns, host_api_calls, proxy_steps, proxy_wakeups, tcp_tx_bytes,
                                   p2p_tx_bytes, verbs_tx_bytes, fabric_tx_bytes, staleness, staleness_sum,
                                   staleness_max, computed_batches, pushes, dropped_pushes, checkpoints,
                                   checkpoint_stall_ns, began_ns, lost, joined, nodes_after, resumed, accuracies)

nlohmann::json to_json(const NodeReport& report) {
  nlohmann::json json = static_cast<const NodeCounters&>(report);
  json["weights_hash"] = fmt::format("{:016x}", report.weights_hash);
  json["losses"] = report.losses;
  json["test_loss"] = report.test_loss;
  return json;
}

double number_from(const nlohmann::json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

NodeReport node_report_from(const nlohmann::json& json) {
  NodeReport report;
  json.get_to<NodeCounters>(report);
  for (const nlohmann::json& loss : json.at("losses")) report.losses.push_back(static_cast<float>(number_from(loss)));
  report.test_loss = number_from(json.at("test_loss"));
  report.weights_hash = std::stoull(json.at("weights_hash").get<std::string>(), nullptr, 16);
  return report;
}

namespace {

nlohmann::json slowest_json(const RunReport& run) {
  const HoldUp slowest = run.hold_up();
  if (slowest.rank < 0) return nullptr;
  return {{"rank", slowest.rank},
          {"held_up_s", slowest.held},
          {"share_of_steps", share_of_steps(run.hold_ups(), slowest.rank)}};
}

}  // namespace

nlohmann::json RunReport::json() const {
  nlohmann::json layers = nlohmann::json::array();
  const std::vector<LayerScheme> by_layer = schemes();
  for (int i = 0; i < layout.size(); ++i) {
    const LayerTraffic traffic = layer_total(nodes, i);
    const LayerScheme& chosen = by_layer[static_cast<std::size_t>(i)];
    layers.push_back({{"name", layout[i].name()},
                      {"inputs", layout[i].inputs()},
                      {"outputs", layout[i].outputs()},
                      {"parameters", layout[i].parameters()},
                      {"bands", layout[i].bands()},
                      {"pushed_bytes", traffic.pushed_bytes},
                      {"pulled_bytes", traffic.pulled_bytes},
                      {"published_bytes", traffic.published_bytes},
                      {"in_place_bytes", traffic.in_place_bytes},
                      {"scheme", has_schemes(config) ? chosen.scheme : ""},
                      {"why", has_schemes(config) ? chosen.why : ""}});
  }
  nlohmann::json tile;  // null if layers are not cut
  if (config.tile_bytes != 0) tile = {{"bytes", config.tile_bytes}, {"passed_bytes_per_step", passed_bytes(*this)}};
  nlohmann::json node_reports = nlohmann::json::array();
  for (const NodeReport& node : nodes) node_reports.push_back(to_json(node));
  const NodeReport& first = nodes.front();
  const nlohmann::json pool = {{"bytes", config.device_pool_bytes},
                               {"staged_bytes_per_step", staged_per_step()},
                               {"copying_share", copying_share()},
                               {"stall_share", stall_share()}};
  return {{"program", "param_sync"},
          {"device", device},
          {"consistency", config.sync.empty() ? "bsp" : config.sync},
          {"staleness", staleness_of(nodes)},
          {"mode", config.serial       ? "serial"
                   : config.in_process ? "in-process"
                   : config.rank >= 0  ? "rank"
                                       : "cluster"},
          {"model", config.model},
          {"batch_norm", config.batch_norm},
          {"nodes", config.nodes},
          {"epochs", config.epochs},
          {"batch", config.batch},
          {"learning_rate", config.learning_rate},
          {"warmup", config.warmup_steps},
          {"elastic_lr", config.elastic_lr_nodes},
          {"momentum", config.momentum},
          {"seed", config.seed},
          {"outer", config.outer},
          {"codec", config.codec},
          {"error_feedback", config.error_feedback},
          {"stale_lr", config.stale_lr},
          {"delay_compensation", config.delay_compensation},
          {"delays", config.delays},
          {"step_ms", config.step_ms},
          {"link", gpusock::to_string(config.link)},
          {"scheme", config.sync.empty() ? config.scheme : ""},
          {"prices", chooses_by_prices(config.scheme) ? nlohmann::json(prices_text(config.prices)) : nlohmann::json()},
          {"budget_bytes", config.budget_bytes},
          {"budget_order", config.budget_bytes == 0 ? "" : config.budget_order},
          {"tile", tile},
          {"device_pool", config.device_pool_bytes == 0 ? nlohmann::json() : pool},
          {"first_step", first.first_step},
          {"lost", first.lost},
          {"joined", first.joined},
          {"nodes_after", first.nodes_after},
          {"steps", first.steps},
          {"train_s", first.train_s},
          {"samples_per_s", samples_per_s()},
          {"accuracy", first.accuracies.empty() ? nlohmann::json() : nlohmann::json(first.accuracies.back())},
          {"test_loss", first.test_loss},
          {"accuracies", first.accuracies},
          {"losses", losses()},
          {"slowest", slowest_json(*this)},
          {"layers", layers},
          {"hidden_share", hidden_share()},
          {"host_api_calls_per_step", per_step(nodes, &NodeReport::host_api_calls)},
          {"proxy_wakeups_per_step", per_step(nodes, &NodeReport::proxy_wakeups)},
          {"proxy_steps", total(nodes, &NodeReport::proxy_steps)},
          {"proxy_wakeups", total(nodes, &NodeReport::proxy_wakeups)},
          {"tcp_tx_bytes", total(nodes, &NodeReport::tcp_tx_bytes)},
          {"p2p_tx_bytes", total(nodes, &NodeReport::p2p_tx_bytes)},
          {"verbs_tx_bytes", total(nodes, &NodeReport::verbs_tx_bytes)},
          {"fabric_tx_bytes", total(nodes, &NodeReport::fabric_tx_bytes)},
          {"weights_hash", fmt::format("{:016x}", first.weights_hash)},
          {"same_weights", same_weights()},
          {"node_reports", node_reports}};
}

void RunReport::write_files() const {
  if (!config.json_file.empty()) gpusock::program::write_file(config.json_file, json().dump(1) + "\n");
  if (!config.trace_file.empty()) gpusock::program::write_file(config.trace_file, trace_text(nodes, schemes()));
  if (!config.history_file.empty()) {
    std::string lines;
    for (const NodeReport& node : nodes) lines += node.history;
    gpusock::program::write_file(config.history_file, lines);
  }
  if (config.series_file.empty()) return;
  const std::vector<float> mean = losses();
  const std::size_t before = nodes.front().first_step, epoch_steps = (before + mean.size()) / config.epochs;
  double pushed_mb = 0, pushed_mb_a_step = 0;
  for (int layer = 0; layer < layout.size(); ++layer) {
    pushed_mb_a_step += megabytes(layer_total(nodes, layer).pushed_bytes) / static_cast<double>(mean.size());
  }
  const std::vector<double> waited = waited_s();
  const std::vector<HoldUp> held_up = hold_ups();
  std::string text = "# step\tloss\ttest_accuracy\tpushed_mb\twaited_ms\tseconds\tslowest\theld_up_ms\n";
  text += fmt::format("# {}, {} node{}\n", subject(*this), config.nodes, config.nodes == 1 ? "" : "s");
  for (std::size_t i = 0; i < mean.size(); ++i) {
    const std::size_t step = before + i, epoch = (step + 1) / epoch_steps - before / epoch_steps;
    const bool ends = (step + 1) % epoch_steps == 0 && epoch <= nodes.front().accuracies.size();
    pushed_mb += pushed_mb_a_step;
    const std::vector<std::uint64_t>& times_ns = nodes.front().step_times_ns;
    text += fmt::format(
        "{}\t{:.6f}\t{}\t{:.6f}\t{:.6f}\t{}\t{}\n", step + 1, mean[i],
        ends ? fmt::format("{:.6f}", nodes.front().accuracies[epoch - 1]) : "nan", pushed_mb, 1e3 * waited[i],
        i < times_ns.size() ? fmt::format("{:.6f}", static_cast<double>(times_ns[i]) / 1e9) : "nan",
        i < held_up.size() ? fmt::format("{}\t{:.6f}", held_up[i].rank, 1e3 * held_up[i].held) : "nan\tnan");
  }
  gpusock::program::write_file(config.series_file, text);
}

}  // namespace param_sync
