#include "commands/arguments.hpp"
#include "commands/baselines.hpp"
#include "commands/bench_stores.hpp"
#include "commands/commands.hpp"
#include "commands/table_trial.hpp"

#include "trial/factor_trial.hpp"
#include "trial/trial.hpp"
#include "program/environment.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace param_sync::commands {
namespace {

using gpusock::program::print;

struct BenchOptions {
  int nodes = 4;
  std::string scheme;
  std::string link = "auto";
  std::vector<std::uint64_t> sizes_bytes;
  int repeats = 9;
  std::string beside;
  int rows = 0;  // rows of the layer or the table; 0: not given. The same holds for the numbers below
  int columns = 0;
  int batch = 0;
  std::uint64_t additions = 0;  // additions into rows of a table
  int blocks = 0;
  std::vector<std::uint64_t> owners;  // of a store's ranges
  int pairs = 0;                      // a push and a pull each
  std::string json_file;
};

const std::vector<std::uint64_t> kBenchSizes = {1 << 10, 64 << 10, 1 << 20, 16 << 20};
constexpr int kBenchRows = 1024, kBenchColumns = 4096, kBenchBatch = 32;

std::vector<std::string> benched_schemes(const BenchOptions& options) {
  if (!options.scheme.empty()) return {options.scheme};
  std::vector<std::string> schemes;
  for (const std::string& scheme : schedule::scheme_names()) {
    if (schedule::uses(scheme, schedule::Setting::topology)) continue;
    if (schedule::uses(scheme, schedule::Setting::summation_nodes)) continue;
    schemes.push_back(scheme);
  }
  return schemes;
}

double median_of(const BenchOptions& options, const std::string& scheme, std::uint64_t bytes) {
  schedule::Request request;
  request.nodes = options.nodes;
  executor::TrialSettings settings;
  settings.floats = bytes / sizeof(float);
  settings.link = gpusock::parse_link(options.link);
  settings.repeats = options.repeats;
  settings.fills_rings = true;
  return executor::try_out(schedule::generate(scheme, request), settings).median_s();
}

/// Returns text such as "MPI's and Gloo's".
std::string owners_of(const std::vector<std::string>& baselines) {
  std::string text;
  for (const std::string& baseline : baselines) text += (text.empty() ? "" : " and ") + title_of(baseline) + "'s";
  return text;
}

/// Prints the rest of a size's lines, one for each baseline.
void print_ratios(const std::vector<std::string>& baselines, const std::vector<double>& baseline_times,
                  const std::vector<std::string>& schemes, const std::vector<double>& times) {
  const double best_s = *std::min_element(times.begin(), times.end());
  for (std::size_t i = 0; i < baselines.size(); ++i) {
    if (i != 0) print(fmt::format("\n{:>8}", ""));
    print(fmt::format(" {:>8} {:>10.3f} {:>10.3f}", title_of(baselines[i]), baseline_times[i] * 1e3, best_s * 1e3));
    for (std::size_t k = 0; k < schemes.size(); ++k)
      print(fmt::format(" {:>{}.3f}", baseline_times[i] / times[k], column_width(schemes[k])));
  }
}

/// Prints medians by size and scheme; with baselines, how many times as long these take. Returns the exit status.
int bench_sums(const BenchOptions& options) {
  const std::vector<std::string> schemes = benched_schemes(options), baselines = baselines_of(options.beside);
  for (const std::string& baseline : baselines) require_baseline(baseline);
  const std::string what = baselines.empty() ? "ms" : owners_of(baselines) + " time / ours,";
  print(fmt::format("{} for a sum of all ranks' tensors (median of {}), {} ranks in this process, link {}\n{:>8}", what,
                    options.repeats, options.nodes, options.link, ""));
  if (!baselines.empty()) print(fmt::format(" {:>8}", "beside") + column("its ms") + column("best ms"));
  for (const std::string& scheme : schemes) print(column(scheme));
  for (const std::uint64_t size : options.sizes_bytes) {
    print(fmt::format("\n{:>8}", in_units(size)));
    std::vector<double> baseline_times, times;
    for (const std::string& baseline : baselines)
      baseline_times.push_back(baseline_s(baseline, options.nodes, options.link, size, options.repeats));
    for (const std::string& scheme : schemes) times.push_back(median_of(options, scheme, size));
    print_ratios(baselines, baseline_times, schemes, times);
    for (std::size_t i = 0; baselines.empty() && i < schemes.size(); ++i)
      print(fmt::format(" {:>{}.3f}", times[i] * 1e3, column_width(schemes[i])));
  }
  print("\n");
  return gpusock::program::kSuccess;
}

bool is_of_factors(const std::string& scheme) {
  const auto& names = executor::factor_trial_schemes();
  return std::find(names.begin(), names.end(), scheme) != names.end();
}

std::string what_is_sent(const std::string& scheme, const executor::FactorTrial& trial) {
  if (schedule::moves(scheme, schedule::Moves::factors_to_owner))
    return "factors sent to rank 0, and its weights to all";
  if (schedule::moves(scheme, schedule::Moves::factors_to_all)) return "factors sent to all";
  return trial.of_factors ? "hybrid takes factors sent to all" : "hybrid takes the whole gradient";
}

/// The layer whose gradient is exchanged as factors.
executor::FactorLayout layout_of(const BenchOptions& options) {
  const auto size = [](int given, int usual) { return static_cast<std::uint32_t>(given != 0 ? given : usual); };
  return {size(options.rows, kBenchRows), size(options.columns, kBenchColumns), size(options.batch, kBenchBatch),
          static_cast<std::uint32_t>(options.nodes)};
}

/// Times the exchange of a layer's gradient as factors, and as a whole. Returns the exit status.
int bench_factors(const BenchOptions& options) {
  executor::FactorTrialSettings settings;
  settings.layout = layout_of(options);
  settings.scheme = options.scheme;
  settings.link = gpusock::parse_link(options.link);
  settings.repeats = options.repeats;
  const executor::FactorTrial trial = executor::try_factors(settings);
  const executor::FactorLayout& layout = settings.layout;
  const auto megabytes = [](std::uint64_t floats) { return static_cast<double>(floats * sizeof(float)) * 1e-6; };
  print(fmt::format("gradient of {} x {} weights, {} samples of each of {} ranks, link {} (median of {})\n",
                    layout.rows, layout.columns, layout.samples, options.nodes, options.link, options.repeats));
  print(fmt::format("  {}: {:.3f} MB of the rank that sends most, {:.3f} ms{}\n", what_is_sent(options.scheme, trial),
                    megabytes(trial.sent_floats), trial.exchange_s * 1e3,
                    trial.of_factors ? fmt::format(", and {:.3f} ms to make {} again", trial.rebuild_s * 1e3,
                                                   schedule::moves(options.scheme, schedule::Moves::factors_to_owner)
                                                       ? "gradient and weights"
                                                       : "the gradient")
                                     : ""));
  print(fmt::format("  the whole gradient by {}: {:.3f} MB of the rank that sends most, {:.3f} ms\n", settings.dense,
                    megabytes(trial.dense_floats), trial.dense_s * 1e3));
  print(fmt::format("  relative error {:.2g}, {}\n", trial.error,
                    trial.same_everywhere ? "the same bits on all ranks" : "other bits on some ranks"));
  if (!(trial.error <= trial.error_allowed)) {
    fmt::print(stderr, "param_sync: error {:.2g} above {:.2g}, which rounding may make of so many samples\n",
               trial.error, trial.error_allowed);
  }
  if (!trial.same_everywhere) fmt::print(stderr, "param_sync: the ranks have other bits\n");
  const bool well = trial.same_everywhere && trial.error <= trial.error_allowed;
  return well ? gpusock::program::kSuccess : gpusock::program::kFailure;
}

/// Times blocks that add into the rows of one table. Returns the exit status.
int bench_tables(const BenchOptions& options) {
  TableTrialSettings settings;
  settings.additions = options.additions;
  if (options.rows != 0) settings.rows = static_cast<std::uint64_t>(options.rows);
  if (options.columns != 0) settings.columns = static_cast<std::uint32_t>(options.columns);
  if (options.blocks != 0) settings.blocks = static_cast<unsigned>(options.blocks);
  settings.repeats = options.repeats;
  print(fmt::format("{} additions into {} rows of {} floats, by {} blocks at the same time (median of {})\n",
                    settings.additions, settings.rows, settings.columns, settings.blocks, settings.repeats));
  bool conserved = true;
  for (const TableTime& time : try_tables(settings)) {
    print(fmt::format("  {:<20} {:>10.3f} ms {:>10.2f} million rows a second{}\n", time.how, time.median_s * 1e3,
                      static_cast<double>(settings.additions) / time.median_s * 1e-6,
                      time.conserved ? "" : ", SUMS ARE WRONG"));
    conserved = conserved && time.conserved;
  }
  if (conserved) print("  all sums are exact\n");
  return conserved ? gpusock::program::kSuccess : gpusock::program::kFailure;
}

int run_bench(BenchOptions& options) {
  if (options.additions != 0) return bench_tables(options);
  if (!options.owners.empty()) {
    return bench_stores({options.nodes, options.link, options.owners, options.sizes_bytes, options.pairs,
                         options.repeats, options.json_file});
  }
  if (is_of_factors(options.scheme)) return bench_factors(options);
  if (options.sizes_bytes.empty()) options.sizes_bytes = kBenchSizes;
  return bench_sums(options);
}

std::string problem_of_owners(const BenchOptions& options) {
  if (!options.scheme.empty() || !options.beside.empty() || options.additions != 0)
    return "--owners times pushes and pulls: --scheme, --beside and --additions are not for it";
  const std::uint64_t most = *std::max_element(options.owners.begin(), options.owners.end());
  if (most > static_cast<std::uint64_t>(options.nodes))
    return fmt::format("--owners {}: there are {} --nodes", most, options.nodes);
  const std::uint64_t largest = options.sizes_bytes.empty()
                                    ? 0
                                    : *std::max_element(options.sizes_bytes.begin(), options.sizes_bytes.end());
  // A worker has two ranges and a part of the weights. Beside it, each owner on raw sockets has room for its push.
  return gpusock::program::problem_of_memory(largest * (3 + most) * static_cast<std::uint64_t>(options.nodes),
                                             "--sizes, --nodes and --owners");
}

std::string problem_of_bench(const BenchOptions& options) {
  if (schedule::uses(options.scheme, schedule::Setting::topology)) return options.scheme + " needs a topology";
  for (const std::uint64_t size : options.sizes_bytes) {
    if (const std::string problem = problem_of_floats("--sizes", size); !problem.empty()) return problem;
  }
  if (!options.owners.empty()) {
    if (const std::string problem = problem_of_owners(options); !problem.empty()) return problem;
  } else if (options.pairs != 0 || !options.json_file.empty()) {
    return "--pairs and --json are for --owners";
  }
  const bool factors = is_of_factors(options.scheme);
  if (options.additions != 0) {
    if (!options.scheme.empty() || !options.sizes_bytes.empty() || !options.beside.empty() || options.batch != 0)
      return "--additions times a table of rows: --scheme, --sizes, --beside and --batch are not for it";
    const std::uint64_t rows = options.rows != 0 ? static_cast<std::uint64_t>(options.rows) : TableTrialSettings().rows;
    if (options.additions / rows > 1'000'000)
      return "sums of floats are exact up to a million --additions for each of the --rows";
    return "";
  }
  if (options.blocks != 0) return "--blocks is for --additions";
  if (!factors && (options.rows != 0 || options.columns != 0 || options.batch != 0))
    return "--rows, --columns and --batch are for --scheme sfb, adam-fc and hybrid, and the first two for --additions";
  if (factors && !options.sizes_bytes.empty())
    return fmt::format("--sizes is not for --scheme {}: give --rows and --columns", options.scheme);
  if (factors && options.nodes < 2) return fmt::format("--scheme {} needs two nodes", options.scheme);
  if (factors && !options.beside.empty())
    return fmt::format("--beside is for sums, not for --scheme {}", options.scheme);
  if (!factors) return "";
  const executor::FactorLayout layout = layout_of(options);
  const std::uint64_t weights = std::uint64_t{layout.rows} * layout.columns;
  return gpusock::program::problem_of_memory(weights * 4 * sizeof(float) * static_cast<std::uint64_t>(options.nodes),
                                             "--rows, --columns and --nodes");
}

std::optional<int> parse_bench(int argc, char** argv, BenchOptions& options) {
  Arguments arguments("Times sums of tensors over gpusock's sockets: each scheme and size, all ranks in this process.");
  std::vector<std::string> schemes = schedule::scheme_names();
  schemes.insert(schemes.end(), executor::factor_trial_schemes().begin(), executor::factor_trial_schemes().end());
  arguments.number("--nodes", options.nodes, "Ranks", 1, 16);
  arguments
      .choice("--scheme", options.scheme, schemes,
              "One scheme; sfb, adam-fc, hybrid: a layer's gradient is sent as factors, beside an all-reduce of it")
      .shown_default("all but blink, byteps, and those of factors");
  arguments.bytes("--sizes", options.sizes_bytes, "Bytes of a tensor, with commas", 4, std::uint64_t{1} << 30)
      .shown_default("1K,64K,1M,16M");
  arguments.choice("--link", options.link, gpusock::program::link_names(), "What carries it");
  arguments.number("--repeats", options.repeats, "Timed runs", 1, 10000);
  arguments.choice("--beside", options.beside, beside_choices(),
                   "Print ratios to the all-reduce of MPI, Gloo or both, between as many processes, measured in turn; "
                   "MPI with link tcp: its tcp; Gloo: always its tcp");
  arguments
      .number("--additions", options.additions,
              "Instead: so many additions into the rows of one table, by many blocks without locks and with them",
              std::uint64_t{1}, std::uint64_t{1} << 30)
      .shown_default("none");
  arguments.number("--blocks", options.blocks, "Blocks that add at the same time (--additions)", 1, 1024)
      .shown_default(std::to_string(TableTrialSettings().blocks));
  arguments
      .counts("--owners", options.owners,
              "Instead: pushes and pulls of all ranks through a store whose ranges so many ranks own, with commas; "
              "beside raw sockets and the scheme ps:even",
              1, 16)
      .shown_default("none");
  arguments
      .number("--pairs", options.pairs, "Pushes, and as many pulls, of each rank in a round (--owners)", 1, 100'000)
      .shown_default("16 of the largest ranges to 1000 of small ones");
  arguments.json(options.json_file, "The figures of --owners, with all rounds, as JSON");
  arguments.number("--rows", options.rows, "Outputs of the layer (factors), or rows of the table", 1, 1 << 20)
      .shown_default(fmt::format("{}; of a table {}", kBenchRows, TableTrialSettings().rows));
  arguments.number("--columns", options.columns, "Inputs of the layer (factors), or floats of a row", 1, 1 << 20)
      .shown_default(fmt::format("{}; of a table {}", kBenchColumns, TableTrialSettings().columns));
  arguments.number("--batch", options.batch, "Samples of each rank (factors)", 1, 1 << 16)
      .shown_default(std::to_string(kBenchBatch));
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&options] { return problem_of_bench(options); });
  return arguments.parse(argc, argv);
}

}  // namespace

int bench_command(int argc, char** argv) {
  BenchOptions options;
  if (const auto status = parse_bench(argc, argv, options)) return *status;
  return gpusock::program::run("param_sync", [&] { return run_bench(options); });
}

}  // namespace param_sync::commands
