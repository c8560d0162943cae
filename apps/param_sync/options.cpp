#include "options.hpp"

#include "layout.hpp"

#include "gpusock/gpusock.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace param_sync {
namespace {

/// What is split after parsing, so that the last of two options counts as a whole.
struct Texts {
  std::string link;
  std::string hidden = "128,64";
  std::string peers;
};

std::vector<std::string> split(const std::string& text) {
  return text.empty() ? std::vector<std::string>{} : CLI::detail::split(text, ',');
}

void add_run_options(CLI::App& app, Config& config, Texts& texts) {
  app.option_defaults()->take_last();  // so that a script's arguments can be overridden behind them
  app.add_option("--nodes", config.nodes, "Number of nodes; alone: starts them all on this machine")
      ->check(CLI::Range(1, kNodesMax))
      ->capture_default_str();
  app.add_option("--hidden", texts.hidden, "Widths of the hidden layers, with commas")->capture_default_str();
  app.add_option("--epochs", config.epochs, "How often all training samples are visited")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--batch", config.batch, "Samples of a step on each node")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--lr", config.learning_rate, "Learning rate")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--momentum", config.momentum, "Momentum of SGD")->check(CLI::Range(0.0, 1.0))->capture_default_str();
  app.add_option("--seed", config.seed, "Decides initial weights and the order of the samples")->capture_default_str();
  app.add_option("--limit", config.limit, "Use only the first training samples; 0: all")->capture_default_str();
  app.add_option("--data", config.data, "Folder with MNIST's four files, plain or .gz")->capture_default_str();
}

void add_process_options(CLI::App& app, Config& config, Texts& texts) {
  app.add_option("--link", texts.link, "What carries the bytes")
      ->check(CLI::IsMember({"auto", "p2p", "tcp"}))
      ->default_str("GPUSOCK_LINK, or auto");
  app.add_option("--timeout", config.timeout_s, "Seconds to wait for another node before giving it up")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  app.add_option("--rank", config.rank, "Run only this node; needs --peers")->check(CLI::Range(0, kNodesMax - 1));
  app.add_option("--peers", texts.peers, "HOST:PORT of all nodes by rank, this one's included, with commas");
  app.add_flag("--in-process", config.in_process, "All nodes in this process (they share one GPU)");
  app.add_flag("--serial", config.serial, "No sockets: one process does all nodes' work in the same order");
  app.add_option("--json", config.json_file, "Write the results here");
  app.add_option("--series", config.series_file, "Write loss and accuracy over the steps here, for plot.gp");
  app.add_option("--save-weights", config.weights_file, "Write the final weights here, as 32-bit floats");
  app.add_option("--control-fd", config.control_fd)->group("");  // how a cluster talks to its nodes: not for people
}

/// Throws CLI::ValidationError or gpusock::Error.
void take_texts(const Texts& texts, Config& config) {
  config.link = texts.link.empty() ? gpusock::Endpoint::parse("127.0.0.1:0").link : gpusock::parse_link(texts.link);
  config.peers = split(texts.peers);
  config.hidden.clear();
  for (const std::string& width : split(texts.hidden)) {
    std::uint32_t value = 0;
    if (!CLI::detail::lexical_cast(width, value) || value == 0 || value > kWidthMax) {
      throw CLI::ValidationError("--hidden", fmt::format("'{}' is no width from 1 to {}", width, kWidthMax));
    }
    config.hidden.push_back(value);
  }
  if (config.hidden.size() >= kLayersMax) {
    throw CLI::ValidationError("--hidden", fmt::format("at most {} hidden layers", kLayersMax - 1));
  }
}

/// What the options' own checks cannot see. Empty where all is well.
std::string misuse(const Config& config) {
  if (int(config.in_process) + int(config.serial) + int(config.rank >= 0) > 1) {
    return "--in-process, --serial and --rank exclude each other: give one of them";
  }
  if (config.rank >= config.nodes) {
    return fmt::format("--rank {} of --nodes {}: ranks are 0 to {}", config.rank, config.nodes, config.nodes - 1);
  }
  if (config.control_fd >= 0) return config.rank < 0 ? "--control-fd needs --rank" : "";
  if (config.rank < 0 && !config.peers.empty()) return "--peers is for one node started by hand: give its --rank too";
  if (config.rank >= 0 && config.peers.size() != static_cast<std::size_t>(config.nodes)) {
    return fmt::format(
        "--peers lists {} addresses, but there are --nodes {}: list HOST:PORT of every rank, "
        "this one's included",
        config.peers.size(), config.nodes);
  }
  for (const std::string& peer : config.peers) {
    try {
      if (gpusock::Endpoint::parse(peer).port == 0 && config.nodes > 1) {
        return "--peers: " + peer + " has no port; the nodes could not find each other";
      }
    } catch (const gpusock::Error& error) {
      return std::string("--peers: ") + error.what();
    }
  }
  return "";
}

}  // namespace

std::optional<Config> parse_options(int argc, char** argv, int& exit_status) {
  Config config;
  Texts texts;
  CLI::App app(
      "Trains a model on Fashion-MNIST across nodes; the kernels that compute the gradients push them to their owners.",
      "param_sync");
  app.footer("Exit status: 0 success, 1 failure (a node was lost, or the run was interrupted), 2 misuse.");
  add_run_options(app, config, texts);
  add_process_options(app, config, texts);
  exit_status = 2;
  try {
    app.parse(argc, argv);
    take_texts(texts, config);
  } catch (const CLI::ParseError& error) {
    exit_status = app.exit(error) == 0 ? 0 : 2;
    return std::nullopt;
  } catch (const gpusock::Error& error) {
    fmt::print(stderr, "param_sync: {}\n", error.what());
    return std::nullopt;
  }
  if (const std::string problem = misuse(config); !problem.empty()) {
    fmt::print(stderr, "param_sync: {}\n", problem);
    return std::nullopt;
  }
  exit_status = 0;
  return config;
}

std::vector<std::string> to_arguments(const Config& config) {
  return {"--nodes",    std::to_string(config.nodes),
          "--hidden",   fmt::format("{}", fmt::join(config.hidden, ",")),
          "--epochs",   std::to_string(config.epochs),
          "--batch",    std::to_string(config.batch),
          "--lr",       fmt::format("{:.9g}", config.learning_rate),
          "--momentum", fmt::format("{:.9g}", config.momentum),
          "--seed",     std::to_string(config.seed),
          "--limit",    std::to_string(config.limit),
          "--data",     config.data,
          "--link",     std::string(gpusock::to_string(config.link)),
          "--timeout",  fmt::format("{}", config.timeout_s)};
}

}  // namespace param_sync
