#include "commands/arguments.hpp"
#include "commands/commands.hpp"
#include "commands/measure.hpp"

#include "figures/figures.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"
#include "param_sync/schedule/file.hpp"

#include <fmt/format.h>

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace param_sync::commands {
namespace {

using figures::Figure;
using gpusock::program::print;
namespace fs = std::filesystem;

constexpr int kPlottedNodes = 4, kPlottedRepeats = 7;
constexpr int kCommandNotFound = 127;  // a shell's exit status

struct PlotOptions {
  std::string folder;
  std::string model = "vgg16";
  std::string scheme = "ring";
  int nodes = 32;
  bool measures = false;
  std::string link;
};

/// Returns the word, quoted for a shell's command line.
std::string shell_word(const std::string& word) {
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return text + "'";
}

/// Returns figures of the training's files in the folder. Prints which files are missing.
std::vector<Figure> figures_of_training(const fs::path& folder) {
  std::vector<Figure> all;
  if (const fs::path series = folder / figures::kSeriesFile; fs::exists(series)) {
    all.push_back(figures::loss(schedule::read_text(series)));
  } else {
    print(fmt::format("no loss.svg: there is no {}; train with --series {}\n", series.string(), series.string()));
  }
  if (const fs::path trace = folder / figures::kTraceFile; fs::exists(trace)) {
    all.push_back(figures::layers(schedule::read_text(trace)));
  } else {
    print(fmt::format("no layers.svg: there is no {}; train with --scheme ps:even --trace {}\n", trace.string(),
                      trace.string()));
  }
  return all;
}

void draw_all(const fs::path& folder, const std::vector<Figure>& all) {
  std::string command = "cd " + shell_word(folder);
  for (const Figure& figure : all) {
    if (!figure.data.empty()) gpusock::program::write_file(folder / (figure.name + ".dat"), figure.data);
    gpusock::program::write_file(folder / (figure.name + ".gp"), figure.script);
    command += " && gnuplot " + figure.name + ".gp";  // one each: else axes, ranges and labels of one figure stay
  }
  std::fflush(nullptr);
  const int status = std::system(command.c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCommandNotFound) {
    throw schedule::Error(
        fmt::format("gnuplot is not installed (gnuplot-nox); scripts and data are in {}: run {} where "
                    "it is",
                    folder.string(), command));
  }
  if (status != 0) throw schedule::Error("gnuplot has failed: " + command);
  for (const Figure& figure : all) print(fmt::format("{}\n", (folder / (figure.name + ".svg")).string()));
}

int run_plot(const PlotOptions& options) {
  const fs::path folder = options.folder;
  if (!fs::is_directory(folder)) throw Misuse(options.folder + " is no folder");
  std::vector<Figure> all = figures_of_training(folder);
  simulate::TrainingSettings settings;
  settings.scheme = options.scheme;
  settings.steps = 3;  // nothing is random, so steps after the second one are all alike
  std::vector<int> nodes;
  for (int count = 2; count <= options.nodes; count *= 2) nodes.push_back(count);
  all.push_back(figures::efficiency(models::model(options.model), settings, nodes, {1, 2.5, 5, 10, 25, 40, 100}));
  if (options.measures) {
    const std::string link = options.link.empty() ? "auto" : options.link;
    const MeasuredLinks links = measure_links(kPlottedNodes, gpusock::parse_link(link), kPlottedRepeats);
    all.push_back(figures::predicted(links.times, fmt::format("{} ranks of one process, link {}, medians of {}",
                                                              kPlottedNodes, link, kPlottedRepeats)));
  }
  draw_all(folder, all);
  return gpusock::program::kSuccess;
}

std::optional<int> parse_plot(int argc, char** argv, PlotOptions& options) {
  Arguments arguments(fmt::format(
      "Draws a training's results with gnuplot: loss over time and bytes ({}, which --series writes), what each layer "
      "did in a step ({}, which --trace writes); and training in virtual time: efficiency over nodes and bandwidth.",
      figures::kSeriesFile, figures::kTraceFile));
  arguments.positional("DIR", options.folder, "The folder with these files; figures are written into it");
  arguments.choice("--model", options.model, models::model_names(), "Whose efficiency is drawn");
  std::vector<std::string> schemes = all_schemes();
  std::erase_if(schemes, [](const std::string& scheme) { return schedule::uses(scheme, schedule::Setting::topology); });
  schemes.push_back(simulate::kHybrid);
  arguments.choice("--scheme", options.scheme, schemes, "How it exchanges gradients");
  arguments.number("--nodes", options.nodes, "Up to how many nodes", 2, 64);
  arguments.flag("--measure", options.measures,
                 "Also time all-reduces between ranks of this process, and draw predicted against measured times");
  arguments.choice("--link", options.link, gpusock::program::link_names(), "What is measured").shown_default("auto");
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&options] { return options.measures || options.link.empty() ? "" : "--link is for --measure"; });
  return arguments.parse(argc, argv);
}

}  // namespace

int plot_command(int argc, char** argv) {
  PlotOptions options;
  if (const auto status = parse_plot(argc, argv, options)) return *status;
  return gpusock::program::run("param_sync", [&] { return run_plot(options); });
}

}  // namespace param_sync::commands
