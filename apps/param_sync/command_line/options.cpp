#include "command_line/options.hpp"

#include "command_line/conflicts.hpp"
#include "command_line/model_options.hpp"
#include "layout/layout.hpp"
#include "plan/delays.hpp"
#include "plan/layer_schemes.hpp"
#include "plan/outer.hpp"
#include "plan/store_codec.hpp"
#include "plan/sync.hpp"
#include "param_sync/bootstrap/launch.hpp"

#include "gpusock/gpusock.hpp"
#include "program/arguments.hpp"
#include "program/environment.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <algorithm>
#include <charconv>

namespace param_sync {
namespace {

using gpusock::program::Arguments;
using gpusock::program::split;

/// Options that are converted after parsing: if one is given twice, the last one counts, as a whole.
struct Texts {
  std::string link;
  std::string hidden = kHiddenNotGiven;
  std::string peers;
  std::string prices;
  std::string lost;
  std::string nodes_after;
  std::string join;
  std::string fail_at;
  bool no_priority = false;
  bool no_error_feedback = false;
  bool no_overlap = false;
  int nodes = 0;                    // 0: not given
  std::uint64_t every = 0;          // 0: not given
  std::uint64_t trace_steps = 0;    // 0: not given
  std::uint64_t publish_steps = 0;  // 0: not given
};

constexpr std::uint64_t kAnySeed = ~std::uint64_t{0};
constexpr std::uint32_t kSamplesMax = ~std::uint32_t{0};
constexpr std::uint64_t kFuseBytesMax = 1u << 30;
constexpr std::uint64_t kBudgetBytesMax = std::uint64_t{1} << 40;
constexpr std::uint64_t kTileBytesMax = std::uint64_t{1} << 40;
constexpr std::uint64_t kPoolBytesMax = std::uint64_t{1} << 40;
constexpr double kStepMsMin = 0.001, kStepMsMax = 60'000;
constexpr std::uint64_t kTraceStepsMax = 1000;
constexpr std::uint64_t kPublishStepsMax = 1'000'000'000;
constexpr std::uint64_t kWarmupMax = 1u << 24;  // floats count so far
constexpr int kDescriptorMax = 1 << 20;
constexpr float kLearningRateMin = 1e-30F, kLearningRateMax = 1e30F;  // any positive number

/// Returns 0 if the text is not a step.
std::uint64_t step_from(const std::string& text) {
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  return error == std::errc{} && end == text.data() + text.size() ? step : 0;
}

/// Says what is wrong with --resume; empty if nothing is.
std::string resume_problem(const std::string& text) {
  return text == "latest" || step_from(text) != 0 ? "" : "'" + text + "' is neither latest nor a step from 1 on";
}

/// Says what `read` finds wrong with the text of an option; empty if nothing is.
template <class Read>
std::string problem_of(Read read, const std::string& text) {
  try {
    read(text);
    return "";
  } catch (const gpusock::Error& error) {
    return error.what();
  }
}

/// Says what is wrong with --sync; empty if nothing is.
std::string sync_problem(const std::string& text) {
  return text.empty() ? "'' is no clock: take bsp, ssp:S, async or every:X" : problem_of(sync_of, text);
}

/// Reads numbers of steps with commas. Throws gpusock::Error (EINVAL).
std::vector<std::uint64_t> lost_from(const std::string& text) {
  std::vector<std::uint64_t> after;
  for (const std::string& step : split(text)) {
    const char* const end = step.data() + step.size();
    const auto read = std::from_chars(step.data(), end, after.emplace_back());
    if (read.ec == std::errc() && read.ptr == end) continue;
    throw gpusock::Error::with_cause(EINVAL, "'" + text + "' is no list of steps, as 57 or 57,80");
  }
  return after;
}

/// Reads "STEP:NODES", or several with commas. Throws gpusock::Error (EINVAL).
std::vector<NodesAfter> nodes_after_from(const std::string& text) {
  std::vector<NodesAfter> all;
  for (const std::string& one : split(text)) {
    const char* const end = one.data() + one.size();
    NodesAfter& after = all.emplace_back();
    const auto step = std::from_chars(one.data(), end, after.step);
    const bool has_step = step.ec == std::errc() && step.ptr != end && *step.ptr == ':';
    const auto nodes = std::from_chars(has_step ? step.ptr + 1 : end, end, after.nodes);
    if (has_step && nodes.ec == std::errc() && nodes.ptr == end && after.nodes > 0 && after.nodes <= kNodesMax)
      continue;
    throw gpusock::Error::with_cause(EINVAL, fmt::format("'{}' is not STEP:NODES, as 57:5 or 57:5,80:4, with 1 to {} "
                                                         "nodes",
                                                         text, kNodesMax));
  }
  return all;
}

/// Says what is wrong with --join; empty if nothing is. An unknown host is no misuse.
std::string join_problem(const std::string& text) {
  for (const std::string& member : split(text)) {
    try {
      if (gpusock::Endpoint::parse(member).port == 0) return member + " has no port: give what the nodes print";
    } catch (const gpusock::Error& error) {
      if (error.code().value() == EINVAL) return error.what();
    }
  }
  return split(text).empty() ? "it needs HOST:PORT of a node that trains" : "";
}

/// Reads "RANK@STEP:PHASE", or several with commas. Throws gpusock::Error (EINVAL).
std::vector<FailAt> fail_at_from(const std::string& text) {
  std::vector<FailAt> all;
  for (const std::string& one : split(text)) {
    const char* const end = one.data() + one.size();
    FailAt& at = all.emplace_back();
    const auto rank = std::from_chars(one.data(), end, at.rank);
    const bool has_rank = rank.ec == std::errc() && rank.ptr != end && *rank.ptr == '@' && at.rank >= 0;
    const auto step = std::from_chars(has_rank ? rank.ptr + 1 : end, end, at.step);
    const bool has_step = step.ec == std::errc() && step.ptr != end && *step.ptr == ':';
    const auto* const phase = std::find(std::begin(kFailPhases), std::end(kFailPhases),
                                        std::string_view(has_step ? step.ptr + 1 : end, end));
    if (!has_step || phase == std::end(kFailPhases)) {
      throw gpusock::Error::with_cause(EINVAL,
                                       fmt::format("'{}' is not RANK@STEP:PHASE, as 2@57:push; PHASE is one of {}", one,
                                                   fmt::join(kFailPhases, ", ")));
    }
    at.phase = static_cast<FailPhase>(phase - std::begin(kFailPhases));
  }
  return all;
}

/// RANK@STEP:PHASE of each, with commas.
std::string fail_at_text(const std::vector<FailAt>& all) {
  std::string text;
  for (const FailAt& at : all) {
    text += fmt::format("{}{}@{}:{}", text.empty() ? "" : ",", at.rank, at.step,
                        kFailPhases[static_cast<std::size_t>(at.phase)]);
  }
  return text;
}

/// Says what is wrong with --publish; empty if nothing is. An unknown host is no misuse.
std::string publish_problem(const std::string& text) try {
  const bool is_stream = gpusock::Endpoint::parse(text).type == gpusock::SocketType::stream;
  return is_stream ? "" : "'" + text + "': weights are sent as a stream: leave out type=seqpacket";
} catch (const gpusock::Error& error) {
  return error.code().value() == EINVAL ? error.what() : "";
}

constexpr const char* kMeasured = "measured";

constexpr int kTimes = 2;  // the first prices are times; the others are speeds
constexpr double kSpeedMin = 1e-3, kPriceMax = 1e12;

/// Says what is wrong with the text; empty if nothing is.
std::string read_prices(const std::string& text, ExchangePrices& prices) {
  const auto parts = split(text);
  bool numbers = parts.size() == std::size(kPrices), in_range = true;
  for (std::size_t i = 0; numbers && i < parts.size(); ++i) {
    double& price = prices.*kPrices[i];
    const char* const end = parts[i].data() + parts[i].size();
    const auto [stop, error] = std::from_chars(parts[i].data(), end, price);
    numbers = error != std::errc::invalid_argument && stop == end;
    const bool held = error == std::errc{};  // false: a double cannot hold the number
    in_range = in_range && held && price >= (i < kTimes ? 0 : kSpeedMin) && price <= kPriceMax;
  }
  if (!numbers) return fmt::format("'{}' is neither measured nor five numbers with commas, as 50,1,10,10,1000", text);
  if (in_range) return "";
  return fmt::format("'{}': the first two numbers are from 0 to {:g}, the last three from {:g} to {:g}", text,
                     kPriceMax, kSpeedMin, kPriceMax);
}

/// Says what is wrong with --prices; empty if nothing is.
std::string prices_problem(const std::string& text) {
  ExchangePrices prices;
  return text == kMeasured ? "" : read_prices(text, prices);
}

void add_run_options(Arguments& arguments, Config& config, Texts& texts) {
  arguments.number("--nodes", texts.nodes, "Number of nodes; alone: starts them all on this machine", 1, kNodesMax)
      .shown_default(std::to_string(config.nodes) + ", or a launcher's");
  add_model_options(arguments, config, texts.hidden);
  arguments.number("--epochs", config.epochs, "How often all training samples are visited", 1, 10000);
  arguments.number("--batch", config.batch, "Samples of a step on each node", 1, 4096);
  arguments.number("--lr", config.learning_rate, "Learning rate", kLearningRateMin, kLearningRateMax);
  arguments.number("--warmup", config.warmup_steps,
                   "Steps in which the learning rate rises linearly up to --lr, for large batches; 0: none", 0,
                   kWarmupMax);
  arguments.number(
      "--elastic-lr", config.elastic_lr_nodes,
      "Nodes for which --lr is: with n nodes the learning rate is --lr times n / NODES, also when nodes are "
      "lost or join; 0: --lr, whatever the number of nodes",
      0, kNodesMax);
  arguments.number("--momentum", config.momentum, "Momentum of SGD", 0.0F, 1.0F);
  arguments.number("--seed", config.seed, "Decides initial weights and the order of the samples", 0, kAnySeed);
  arguments.number("--limit", config.limit, "Use only the first training samples; 0: all", 0, kSamplesMax);
  arguments.text(
      "--data", config.data,
      "Folder with MNIST's four files, or a table: a CSV file or NumPy array (.npy), whose last column is the class; "
      "plain or .gz");
}

void add_process_options(Arguments& arguments, Config& config, Texts& texts) {
  arguments.choice("--link", texts.link, gpusock::program::link_names(), "What carries the bytes")
      .shown_default("GPUSOCK_LINK, or auto");
  arguments.text("--scheme", config.scheme,
                 fmt::format("How gradients are exchanged: one scheme for all layers, or one for each with commas: {}; "
                             "hybrid: by sfb or ps:even, whichever sends less; auto: by what is cheapest at --prices "
                             "(docs/schedules.md)",
                             fmt::join(training_schemes(), ", ")));
  arguments
      .text("--prices", texts.prices,
            "With --scheme auto: measured, or LATENCY,OVERHEAD,BANDWIDTH,REDUCE,REBUILD in us, us, Gb/s, GB/s and "
            "10^9 multiply-adds a second")
      .shown_default("50,1,10,10,1000")
      .check(prices_problem);
  arguments.bytes("--fuse", config.fuse_bytes, "Exchanges neighbouring layers of at most so many bytes together", 0,
                  kFuseBytesMax);
  arguments
      .number("--credits", config.credits,
              "With --scheme ps or ps:even: so many nodes send gradients to one owner at a time", 1, kNodesMax - 1)
      .shown_default("any number");
  arguments
      .bytes("--budget", config.budget_bytes,
             "With --scheme ps or ps:even: bytes that a node sends in a step; the largest changes go first (see "
             "--budget-order), the others when there is room",
             1, kBudgetBytesMax)
      .shown_default("any number");
  arguments.choice(
      "--budget-order", config.budget_order, {std::begin(kBudgetOrders), std::end(kBudgetOrders)},
      "Which changes a budget sends first; random ones, and oldest (floats take turns), are there to compare");
  arguments
      .text(
          "--sync", config.sync,
          "Through a store, in which no node waits longer than its clock asks: bsp, ssp:S (weights miss at most S "
          "pushes of each other node), async, backup:B (a step ends with the first gradients of all nodes but B; with "
          "backup:B,MS also with those that come so many ms later; a late node leaves out the steps that it has "
          "missed), coded:K (likewise: groups of K + 1 nodes compute the same samples, and a step ends with the first "
          "gradients of each group), downpour:PUSH,PULL (pushes and pulls after so many steps), slots:M (after a step "
          "M nodes push and pull, by turns), pipeline:D (weights are D steps old) or tree:D (nodes pass weights on, up "
          "to D times, and each time they are a step older), both with a smaller --momentum; or every:X, in which "
          "nodes "
          "average their weights after X steps, or streaming:X,T, in which they do so layer by layer, and go on for T "
          "steps meanwhile (docs/stores.md)")
      .shown_default("by --scheme, bulk-synchronous")
      .check(sync_problem);
  arguments
      .number("--replicas", config.replicas,
              "With --sync bsp: so many nodes have each weight, and training goes on when up to one less are lost at a "
              "time. One that is silent for --timeout is lost",
              1, kNodesMax)
      .shown_default("1: a lost node ends the training");
  arguments
      .text("--outer", config.outer,
            "With --sync every:X or streaming:X,T: nesterov, or nesterov:LR,MOMENTUM, takes the nodes' mean change as "
            "the gradient of an "
            "optimizer (DiLoCo)")
      .shown_default("nodes take the average")
      .check([](const std::string& text) { return problem_of(outer_of, text); });
  arguments
      .text("--codec", config.codec,
            "With --sync: how floats are sent, PUSH or PUSH,PULL, of fp32, bf16, fp16 and int8; PUSH may be top:SHARE, "
            "too: the largest floats, and the others are kept for later pushes; or top:RATE/s: as many as so many "
            "bytes a second allow; or random: instead of top:")
      .shown_default("fp32")
      .check([](const std::string& text) {
        return text.empty() ? "'' is no codec: take fp32, bf16, fp16, int8 or top:SHARE"
                            : problem_of(store_codec_of, text);
      });
  arguments.flag("--no-error-feedback", texts.no_error_feedback,
                 "With --codec top or random, to compare: what a push leaves out is lost");
  arguments.flag(
      "--stale-lr", config.stale_lr,
      "With --sync ssp, async, downpour or slots: owners divide a push by its lag, if that is more than 1: how many "
      "pushes each other node has made since the pull");
  arguments
      .number("--delay-compensation", config.delay_compensation,
              "With --sync ssp or async: owners add to a gradient its square, divided by the root of its mean square, "
              "times the change of its weight since the pull, times so much (DC-ASGD, which takes 2)",
              0.0F, 1e6F)
      .shown_default("0");
  arguments
      .bytes("--device-pool", config.device_pool_bytes,
             "With --sync bsp, ssp or async: weights and gradients take at most so many bytes of device memory. The "
             "model is in host memory, and layers are copied from there before kernels use them (GeePS)",
             1, kPoolBytesMax)
      .shown_default("the whole model is in device memory");
  arguments
      .bytes(
          "--tile", config.tile_bytes,
          "Fully connected layers with more weights use them in tiles of at most so many bytes, each for all samples "
          "of the batch, so that it stays in a cache; results are the same bit for bit",
          kBandBytesMin, kTileBytesMax)
      .shown_default("layers are not cut");
  arguments.flag("--no-priority", texts.no_priority,
                 "Sends what is ready, and not first what the next forward pass needs first");
  arguments.flag("--no-overlap", texts.no_overlap, "Exchanges gradients only when those of all layers are computed");
  arguments.number("--timeout", config.timeout_s,
                   "Seconds to wait for another node before giving it up; to start, one that runs has 30 at least", 0.1,
                   86400.0);
  arguments.number("--rank", config.rank, "Run only this node; needs --peers", 0, kNodesMax - 1).shown_default("");
  arguments.text("--peers", texts.peers,
                 "HOST:PORT of all nodes by rank, this one's included, with commas; --nodes may be left out");
  arguments
      .text("--join", texts.join,
            "HOST:PORT,... where nodes that train with --replicas may be joined, as they print it: this node asks them "
            "one after the other, and trains with them from their next step on; give it their other arguments")
      .check(join_problem);
  arguments.flag("--in-process", config.in_process,
                 "All nodes in this process; on a GPU always so, unless --rank or a launcher starts nodes");
  arguments.flag("--serial", config.serial, "No sockets: one process does all nodes' work in the same order");
  arguments
      .text(
          "--delays", config.delays,
          "How long steps take, in virtual time with --serial, or with --step-ms: exponential (half of it is random), "
          "slow:F (the last rank takes F times as long), stalls:SHARE:F (so many of all steps do), or several with "
          "commas")
      .shown_default("every step takes 1 unit")
      .check([](const std::string& text) { return problem_of(delays_of, text); });
  arguments
      .number("--step-ms", config.step_ms,
              "For trials, with --sync and real nodes: a step of a node takes at least so long, times its delay (see "
              "--delays)",
              kStepMsMin, kStepMsMax)
      .shown_default("as long as it takes");
  arguments
      .text("--fail-at", texts.fail_at,
            fmt::format("For trials, with --sync: RANK@STEP:PHASE,... where nodes are killed; PHASE is one of {} "
                        "(docs/survival.md)",
                        fmt::join(kFailPhases, ", ")))
      .shown_default("nowhere")
      .check([](const std::string& text) { return problem_of(fail_at_from, text); });
  arguments
      .text("--lost", texts.lost,
            "With --serial --sync bsp: STEP,... after which a node is lost, each counted by the nodes that are there "
            "then: the weights of a run with --replicas that has lost nodes so")
      .shown_default("none")
      .check([](const std::string& text) { return problem_of(lost_from, text); });
  arguments
      .text(
          "--nodes-after", texts.nodes_after,
          "With --serial --sync bsp: STEP:NODES,... how many nodes go on after each of these steps, in this order: the "
          "weights of a run with --replicas in which nodes were lost and have joined so")
      .shown_default("all, always")
      .check([](const std::string& text) { return problem_of(nodes_after_from, text); });
  arguments.text("--checkpoint", config.checkpoint_folder,
                 "Folder for checkpoints: each node writes its own, and keeps its last three");
  arguments.number("--every", texts.every, "Steps from one checkpoint to the next", 1, kAnySeed)
      .shown_default(std::to_string(config.checkpoint_steps));
  arguments
      .text("--resume", config.resume,
            "Go on from a checkpoint: a step, or latest, which begins anew where there is none")
      .check(resume_problem);
  arguments
      .text("--publish", config.publish,
            "HOST:PORT[,link=...] where rank 0 publishes its weights while it trains, for param_sync serve --from and "
            "others; port 0 picks one")
      .check(publish_problem);
  arguments
      .number("--publish-every", texts.publish_steps, "Steps from one version that is published to the next", 1,
              kPublishStepsMax)
      .shown_default(std::to_string(config.publish_steps));
  arguments.json(config.json_file, "The results as JSON");
  arguments.text("--series", config.series_file, "Write loss and accuracy over the steps here, for plot.gp");
  arguments.text("--trace", config.trace_file,
                 "Write what each node did when here, by layer and lane; opens in https://ui.perfetto.dev");
  arguments.number("--trace-steps", texts.trace_steps, "Steps in the trace: the first ones", 1, kTraceStepsMax)
      .shown_default(std::to_string(config.trace_steps));
  arguments.text("--history", config.history_file,
                 "With --sync, write all pushes and pulls here, as lines of JSON (docs/stores.md)");
  arguments.text("--save-weights", config.weights_file, "Write the final weights here, in a safetensors file");
  arguments.number("--control-fd", config.control_fd, "How a cluster talks to its nodes", 0, kDescriptorMax).hidden();
}

void take_texts(const Texts& texts, Config& config) {
  config.link = texts.link.empty() ? gpusock::Endpoint::parse("127.0.0.1:0").link : gpusock::parse_link(texts.link);
  config.peers = split(texts.peers);
  config.measures_prices = texts.prices == kMeasured;
  if (!texts.prices.empty() && !config.measures_prices) read_prices(texts.prices, config.prices);
  config.lost_after = lost_from(texts.lost);
  config.nodes_after = nodes_after_from(texts.nodes_after);
  config.join = split(texts.join);
  config.fail_at = fail_at_from(texts.fail_at);
  config.priority = !texts.no_priority;
  config.error_feedback = !texts.no_error_feedback;
  config.overlap = !texts.no_overlap;
  if (texts.every != 0) config.checkpoint_steps = texts.every;
  if (texts.trace_steps != 0) config.trace_steps = texts.trace_steps;
  if (texts.publish_steps != 0) config.publish_steps = texts.publish_steps;
  if (!config.join.empty()) {
    config.nodes = 1;  // until it knows how many there are
  } else if (texts.nodes != 0) {
    config.nodes = texts.nodes;
  } else if (config.rank >= 0 && !config.peers.empty()) {
    config.nodes = static_cast<int>(config.peers.size());
  }
  take_hidden(texts.hidden, config);
}

/// Reads what a launcher says, unless the options already choose how to run.
void read_environment(const Texts& texts, Config& config) {
  const bool chosen = texts.nodes != 0 || config.rank >= 0 || !config.peers.empty() || config.in_process ||
                      config.serial || !config.join.empty();
  if (chosen) return;
  try {
    config.launch = bootstrap::read_launch();
  } catch (const gpusock::Error& error) {
    throw gpusock::Error::with_cause(EINVAL, error.what() + std::string(kWithoutLauncher));
  }
}

}  // namespace

std::optional<Config> parse_options(int argc, char** argv, int& exit_status) {
  Config config;
  Texts texts;
  Arguments arguments(
      "Trains a model on Fashion-MNIST across nodes; the kernels exchange the gradients, layer by layer.",
      "param_sync schedule: makes, checks and draws schedules; simulate: runs one in virtual time; predict: prices "
      "them; bench: times them; plot: draws results (docs/schedules.md; each has a --help).\n"
      "param_sync serve: answers inference requests, also with the weights of a running training; ask: asks it, and "
      "measures (docs/serving.md).\n"
      "Where mpirun, srun, torchrun or ./run cluster has started all nodes, they find each other: see "
      "docs/many_hosts.md. "
      "--nodes, --rank and --peers mean more than what a launcher says.\n"
      "Exit status: 0 success, 1 failure (a node was lost, or the run was interrupted), 2 misuse, also of the "
      "environment.");
  add_run_options(arguments, config, texts);
  add_process_options(arguments, config, texts);
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&]() -> std::string {
    try {
      take_texts(texts, config);
      read_environment(texts, config);
      if (!texts.prices.empty() && !chooses_by_prices(config.scheme)) return "--prices is for --scheme auto";
      if (const std::string problem = problem_of_model_options(texts.hidden, config); !problem.empty()) return problem;
      if (texts.every != 0 && config.checkpoint_folder.empty()) return "--every needs --checkpoint DIR";
      if (texts.publish_steps != 0 && config.publish.empty()) return "--publish-every needs --publish ENDPOINT";
      if (texts.trace_steps != 0 && config.trace_file.empty()) return "--trace-steps needs --trace FILE";
      return conflict_in(config, texts.nodes != 0);
    } catch (const gpusock::Error& error) {
      return error.what();
    }
  });
  const auto status = arguments.parse(argc, argv);
  exit_status = status.value_or(0);
  if (status) return std::nullopt;
  return config;
}

std::vector<std::string> to_arguments(const Config& config) {
  std::vector<std::string> arguments{"--nodes",      std::to_string(config.nodes),
                                     "--model",      config.model,
                                     "--epochs",     std::to_string(config.epochs),
                                     "--batch",      std::to_string(config.batch),
                                     "--lr",         fmt::format("{:.9g}", config.learning_rate),
                                     "--warmup",     std::to_string(config.warmup_steps),
                                     "--elastic-lr", std::to_string(config.elastic_lr_nodes),
                                     "--momentum",   fmt::format("{:.9g}", config.momentum),
                                     "--seed",       std::to_string(config.seed),
                                     "--limit",      std::to_string(config.limit),
                                     "--data",       config.data,
                                     "--link",       std::string(gpusock::to_string(config.link)),
                                     "--scheme",     config.scheme,
                                     "--fuse",       std::to_string(config.fuse_bytes),
                                     "--timeout",    fmt::format("{}", config.timeout_s)};
  if (config.model == kMlp) {
    arguments.insert(arguments.end(), {"--hidden", fmt::format("{}", fmt::join(config.hidden, ","))});
  }
  if (config.batch_norm != kNoBatchNorm) arguments.insert(arguments.end(), {"--batch-norm", config.batch_norm});
  if (!config.checkpoint_folder.empty()) {
    arguments.insert(arguments.end(),
                     {"--checkpoint", config.checkpoint_folder, "--every", std::to_string(config.checkpoint_steps)});
  }
  if (!config.trace_file.empty()) {
    arguments.insert(arguments.end(),
                     {"--trace", config.trace_file, "--trace-steps", std::to_string(config.trace_steps)});
  }
  if (config.budget_bytes != 0) {
    arguments.insert(arguments.end(),
                     {"--budget", std::to_string(config.budget_bytes), "--budget-order", config.budget_order});
  }
  if (chooses_by_prices(config.scheme)) arguments.insert(arguments.end(), {"--prices", prices_text(config.prices)});
  if (config.credits != 0) arguments.insert(arguments.end(), {"--credits", std::to_string(config.credits)});
  if (!config.priority) arguments.emplace_back("--no-priority");
  if (!config.overlap) arguments.emplace_back("--no-overlap");
  if (!config.publish.empty()) {
    arguments.insert(arguments.end(),
                     {"--publish", config.publish, "--publish-every", std::to_string(config.publish_steps)});
  }
  if (!config.resume.empty()) arguments.insert(arguments.end(), {"--resume", config.resume});
  if (!config.sync.empty()) arguments.insert(arguments.end(), {"--sync", config.sync});
  if (config.replicas != 1) arguments.insert(arguments.end(), {"--replicas", std::to_string(config.replicas)});
  if (!config.fail_at.empty()) arguments.insert(arguments.end(), {"--fail-at", fail_at_text(config.fail_at)});
  if (config.step_ms != 0) {
    arguments.insert(arguments.end(), {"--step-ms", fmt::format("{}", config.step_ms), "--delays", config.delays});
  }
  if (!config.outer.empty()) arguments.insert(arguments.end(), {"--outer", config.outer});
  if (!config.codec.empty()) arguments.insert(arguments.end(), {"--codec", config.codec});
  if (!config.error_feedback) arguments.emplace_back("--no-error-feedback");
  if (config.stale_lr) arguments.emplace_back("--stale-lr");
  if (config.delay_compensation != 0) {
    arguments.insert(arguments.end(), {"--delay-compensation", fmt::format("{:.9g}", config.delay_compensation)});
  }
  if (config.device_pool_bytes != 0) {
    arguments.insert(arguments.end(), {"--device-pool", std::to_string(config.device_pool_bytes)});
  }
  if (config.tile_bytes != 0) arguments.insert(arguments.end(), {"--tile", std::to_string(config.tile_bytes)});
  if (!config.history_file.empty()) arguments.insert(arguments.end(), {"--history", config.history_file});
  return arguments;
}

}  // namespace param_sync
