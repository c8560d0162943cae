#include "command_line/model_options.hpp"

#include "layout/layout.hpp"

#include <fmt/format.h>

#include <charconv>

namespace param_sync {
namespace {

using gpusock::program::split;

/// Returns 0 if the text is not a width.
std::uint32_t width_from(const std::string& text) {
  std::uint32_t width = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), width);
  return error == std::errc{} && end == text.data() + text.size() && width <= kWidthMax ? width : 0;
}

/// Says what is wrong with --hidden; empty if nothing is.
std::string width_problem(const std::string& text) {
  for (const std::string& width : split(text)) {
    if (width_from(width) == 0) return fmt::format("'{}' is no width from 1 to {}", width, kWidthMax);
  }
  return "";
}

}  // namespace

void add_model_options(gpusock::program::Arguments& arguments, Config& config, std::string& hidden) {
  arguments.choice("--model", config.model, {kMlp, kLenet},
                   "mlp: fully connected layers; lenet: two convolutions with pooling, and three of these");
  arguments.text("--hidden", hidden, "With --model mlp: widths of the hidden layers, with commas")
      .shown_default(fmt::format("{}", fmt::join(config.hidden, ",")))
      .check(width_problem);
  arguments.choice(
      "--batch-norm", config.batch_norm, {kNoBatchNorm, kBatchNormNode, kBatchNormAll},
      "With --model lenet: normalizes the outputs of convolutions by the batch; node: by a node's own part "
      "of it; all: by that of all nodes, which share sums within a step");
}

std::string problem_of_model_options(const std::string& hidden, const Config& config) {
  if (config.batch_norm != kNoBatchNorm && config.model != kLenet) {
    return "--batch-norm is for --model lenet, and normalizes the outputs of convolutions";
  }
  if (hidden == kHiddenNotGiven || config.model == kMlp) return "";
  return fmt::format("--hidden is for --model mlp: the layers of {} have fixed widths", config.model);
}

void take_hidden(const std::string& hidden, Config& config) {
  if (hidden == kHiddenNotGiven) return;
  config.hidden.clear();
  for (const std::string& width : split(hidden)) config.hidden.push_back(width_from(width));
}

}  // namespace param_sync
