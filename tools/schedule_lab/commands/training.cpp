#include "commands/training.hpp"

#include "simulate/training.hpp"

#include <fmt/format.h>

#include <vector>

namespace param_sync::commands {
namespace {

using gpusock::program::print;
using simulate::Order;
using simulate::TrainingSettings;
using simulate::TrainingTimes;

/// Returns an option that was given and needs --model; empty if there is none.
std::string given_for_model(const TrainingOptions& options) {
  if (!options.order.empty()) return "--order";
  if (!options.dense.empty()) return "--dense";
  if (options.batch >= 0) return "--batch";
  if (options.steps >= 0) return "--steps";
  if (options.teraflops >= 0) return "--compute";
  if (options.straggler >= 0) return "--straggler";
  if (options.jitter_percent >= 0) return "--jitter";
  if (options.seed >= 0) return "--seed";
  if (options.unit_bytes != 0) return "--unit";
  if (options.fuse_bytes != 0) return "--fuse";
  if (options.free_rebuild) return "--free-rebuild";
  return options.lists_layers ? "--layers" : "";
}

TrainingSettings settings_of(const TrainingOptions& options, const Source& source, const cost::NetworkModel& network) {
  TrainingSettings settings;
  const schedule::Request request = request_of(source);
  settings.nodes = request.nodes;
  settings.summation_nodes = request.summation_nodes;
  if (!source.scheme.empty()) settings.scheme = source.scheme;
  if (!options.dense.empty()) settings.dense = options.dense;
  if (options.batch >= 0) settings.batch = options.batch;
  if (options.steps >= 0) settings.steps = options.steps;
  if (options.teraflops >= 0) settings.flops_per_s = options.teraflops * 1e12;
  if (options.straggler >= 0) settings.straggler = options.straggler;
  if (options.jitter_percent >= 0) settings.jitter = options.jitter_percent / 100;
  if (options.seed >= 0) settings.seed = static_cast<std::uint64_t>(options.seed);
  if (options.unit_bytes != 0) settings.unit_bytes = static_cast<double>(options.unit_bytes);
  settings.fuse_bytes = static_cast<double>(options.fuse_bytes);
  settings.free_rebuild = options.free_rebuild;
  settings.network = network;
  return settings;
}

std::string text_of_layers(const TrainingTimes& times) {
  std::string text = fmt::format("\n{:<24} {:>12} {:>16}\n", "layer", "scheme", "MB of a node");
  for (const simulate::LayerExchange& layer : times.layers) {
    text += fmt::format("{:<24} {:>12} {:>16.3f}\n", layer.layer, layer.scheme, layer.megabytes);
  }
  return text;
}

}  // namespace

void add_training(Arguments& arguments, TrainingOptions& options) {
  const TrainingSettings defaults;
  arguments.choice("--model", options.model, models::model_names(), "Train this model in virtual time");
  arguments
      .choice(
          "--order", options.order, {"end", "per-layer", "priority", "all"},
          "When gradients are sent. end: all after the backward pass. per-layer: a layer's as soon as it is computed. "
          "priority: as per-layer, and what the next forward pass needs first is sent first. all: each of these")
      .shown_default("all");
  arguments.choice("--dense", options.dense, schedule::scheme_names(), "How layers without factors are exchanged")
      .shown_default(defaults.dense);
  arguments.number("--batch", options.batch, "Samples of each node in a step", 1, 1 << 20)
      .shown_default(std::to_string(defaults.batch));
  arguments.number("--compute", options.teraflops, "TFLOP/s of each node", 1e-6, 1e6)
      .shown_default(fmt::format("{}", defaults.flops_per_s * 1e-12));
  arguments.number("--straggler", options.straggler, "The last node takes so many times as long to compute", 1.0, 1e6)
      .shown_default("1");
  arguments
      .number("--jitter", options.jitter_percent, "Each layer takes up to so many percent longer or shorter", 0.0, 99.0)
      .shown_default("0");
  arguments.number("--seed", options.seed, "Of the jitter", 0, 1 << 30).shown_default(std::to_string(defaults.seed));
  arguments
      .bytes("--unit", options.unit_bytes, "Larger gradients are exchanged in parts of so many bytes", 1 << 10,
             kSizeMax)
      .shown_default("4000000");
  arguments.bytes("--fuse", options.fuse_bytes, "Exchange neighbouring layers together until they have so many bytes",
                  1, kSizeMax);
  arguments.number("--steps", options.steps, "Steps; the first two do not count", 3, 1000)
      .shown_default(std::to_string(defaults.steps));
  arguments.flag("--free-rebuild", options.free_rebuild, "Gradients are rebuilt from factors in no time");
  arguments.flag("--layers", options.lists_layers, "Also list how each layer is exchanged");
}

std::string problem_of_training(const TrainingOptions& options, const Source& source) {
  const std::string given = given_for_model(options);
  if (options.model.empty()) return given.empty() ? "" : given + " is for --model";
  if (!source.file.empty()) return "--schedule is not for --model: give --scheme";
  if (!source.topology_file.empty()) return "--topology is not for --model: its links are all alike";
  if (source.given.chunks != 0) return "--chunks is not for --model: --unit says how gradients are divided";
  if (source.given.group_size != 0 || source.given.stripes != 0 || source.given.lanes != 0 || source.given.credits != 0)
    return "--group-size, --stripes, --lanes and --credits are not for --model";
  if (!simulate::is_for_factors(source.scheme) && !options.dense.empty())
    return "--dense is for --scheme sfb, adam-fc and hybrid";
  if (!simulate::is_for_factors(source.scheme) && options.free_rebuild)
    return "--free-rebuild is for --scheme sfb, adam-fc and hybrid";
  if (options.seed >= 0 && options.jitter_percent < 0) return "--seed is for --jitter";
  return "";
}

int run_training(const TrainingOptions& options, const Source& source, const cost::NetworkModel& network) {
  TrainingSettings settings = settings_of(options, source, network);
  const models::Model model = models::model(options.model);
  print(
      fmt::format("{}: {:.0f} parameters in {} tensors, {:.4g} GFLOP forward for a sample\n"
                  "{} nodes, {} samples each, {:.4g} TFLOP/s, {:.4g} Gb/s, scheme {}\n\n",
                  model.name, model.parameters(), model.tensors(), model.forward_flops() * 1e-9, settings.nodes,
                  settings.batch, settings.flops_per_s * 1e-12, network.bandwidth * 8e-9, settings.scheme));
  print(fmt::format("{:<10} {:>10} {:>12} {:>12} {:>12} {:>14}\n", "order", "step ms", "compute ms", "exposed ms",
                    "efficiency", "MB of a node"));
  std::vector<Order> orders{Order::end, Order::per_layer, Order::priority};
  if (!options.order.empty() && options.order != "all") orders = {simulate::parse_order(options.order)};
  TrainingTimes times;
  for (const Order order : orders) {
    settings.order = order;
    try {
      times = simulate::train(model, settings);
    } catch (const schedule::Error& error) {
      throw Misuse(error.what());
    }
    print(fmt::format("{:<10} {:>10.2f} {:>12.2f} {:>12.2f} {:>10.1f} % {:>14.1f}\n", to_string(order),
                      times.step_s * 1e3, times.compute_s * 1e3, times.exposed_s() * 1e3, 100 * times.efficiency(),
                      times.bytes_sent * 1e-6));
  }
  if (options.lists_layers) print(text_of_layers(times));
  return gpusock::program::kSuccess;
}

}  // namespace param_sync::commands
