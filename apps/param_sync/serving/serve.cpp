#include "serving/commands.hpp"

#include "checkpoint/safetensors.hpp"
#include "command_line/model_options.hpp"
#include "data/dataset.hpp"
#include "plan/plan.hpp"
#include "serving/server.hpp"
#include "serving/limits.hpp"

#include "program/arguments.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"

#include <cerrno>
#include <filesystem>

namespace param_sync::serving {
namespace {

constexpr unsigned kMsMax = 3'600'000;
constexpr unsigned kPollMsMax = 10'000;  // a training takes those who are silent for a minute for lost

/// What the options give before it is converted.
struct Texts {
  std::string hidden = kHiddenNotGiven;
  std::string weights_file;
  unsigned poll_ms = 5, objective_ms = 0, stale_ms = 0;
};

/// Web clients and others know nothing of links.
gpusock::Endpoint plain_tcp(const std::string& text) {
  gpusock::Endpoint at = gpusock::Endpoint::parse(text);
  if (text.find(",link=") == std::string::npos) at.link = gpusock::LinkKind::tcp;
  if (at.is_plain_tcp()) return at;
  throw gpusock::Error(EINVAL, "endpoint '" + text + "': clients speak plain TCP: leave out link= and type=");
}

/// Says what `parse` finds wrong with an endpoint; empty if nothing is. An unknown host is no misuse.
template <class Parse>
std::string problem_of_endpoint(Parse parse) try {
  parse();
  return "";
} catch (const gpusock::Error& error) {
  return error.code().value() == EINVAL ? error.what() : "";
}

int run(const Config& config, const Texts& texts, ServerSettings settings) {
  settings.listen_at = plain_tcp(settings.where);
  if (!settings.from.empty()) settings.training = gpusock::Endpoint::parse(settings.from);
  constexpr std::uint64_t kMs = 1'000'000;
  settings.pause_ns = texts.poll_ms * kMs;
  settings.objective_ns = texts.objective_ms * kMs;
  settings.stale_ns = texts.stale_ms * kMs;
  const SampleShape sample = read_dataset_shape(config.data, 0).sample;
  const Layout layout = layout_of(config, sample, 1);
  if (!settings.training) settings.weights = safetensors::read_weights(texts.weights_file, layout);
  return run_server(settings, layout, sample);
}

}  // namespace

int serve_command(int argc, char** argv) {
  gpusock::program::Arguments arguments(
      "Answers inference requests over plain TCP, in cohorts, until SIGINT or SIGTERM. The weights are those of a "
      "file, "
      "or of a running training.",
      "The protocol: apps/param_sync/serving/wire.hpp. A client that measures: param_sync ask.");
  Config config;
  Texts texts;
  ServerSettings settings;
  arguments.positional("ENDPOINT", settings.where, "HOST:PORT where clients connect; port 0 picks one");
  arguments.text("--weights", texts.weights_file,
                 "Weights that param_sync --save-weights has written, or a checkpoint");
  arguments.text("--from", settings.from,
                 "HOST:PORT[,link=...] of a training that publishes its weights (param_sync --publish)");
  add_model_options(arguments, config, texts.hidden);
  arguments.text("--data", config.data, "Images of the model's kind, for their size and the number of classes");
  arguments.number("--cohort", settings.cohort, "Requests that are computed together, at most", 1, kCohortMax);
  arguments.number("--objective-ms", texts.objective_ms,
                   "Milliseconds for a request; one that would take longer is refused at once. 0: any", 0, kMsMax);
  arguments.number("--stale-ms", texts.stale_ms,
                   "With --from: the greatest age of weights in milliseconds; if none as new are known, requests are "
                   "refused. 0: any",
                   0, kMsMax);
  arguments.number("--poll-ms", texts.poll_ms, "With --from: milliseconds between two questions for newer weights", 0,
                   kPollMsMax);
  arguments.number("--blocks", settings.blocks, "Blocks, each with clients and cohorts of its own", 1, kBlocksMax);
  arguments.number("--clients", settings.clients, "Clients at the same time; more wait until others leave", 1, 2048);
  arguments.json(settings.json_file, "What was served as JSON, at the end");
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&]() -> std::string {
    if (texts.weights_file.empty() == settings.from.empty()) return "give either --weights FILE or --from HOST:PORT";
    if (settings.from.empty() && texts.stale_ms != 0) return "--stale-ms needs --from: weights of a file do not change";
    if (settings.clients < settings.blocks) return "--clients is less than --blocks: each block needs one";
    if (const std::string problem = problem_of_model_options(texts.hidden, config); !problem.empty()) return problem;
    std::error_code unknown;
    if (std::filesystem::is_regular_file(config.data, unknown)) {
      return "--data: images are served, and a table has none: its columns are scaled by all its rows";
    }
    const std::string problem = problem_of_endpoint([&] { plain_tcp(settings.where); });
    if (!problem.empty() || settings.from.empty()) return problem;
    return problem_of_endpoint([&] {
      if (gpusock::Endpoint::parse(settings.from).port != 0) return;
      throw gpusock::Error(EINVAL, "--from " + settings.from + " has no port");
    });
  });
  if (const auto status = arguments.parse(argc, argv)) return *status;
  take_hidden(texts.hidden, config);
  return gpusock::program::run("param_sync serve", [&] { return run(config, texts, std::move(settings)); });
}

}  // namespace param_sync::serving
