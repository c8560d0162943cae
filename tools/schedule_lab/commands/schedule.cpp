#include "commands/arguments.hpp"
#include "commands/commands.hpp"
#include "commands/foreign_plans.hpp"
#include "commands/trace_files.hpp"

#include "trial/trial.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"
#include "param_sync/schedule/file.hpp"
#include "param_sync/schedule/rank_order.hpp"
#include "param_sync/schedule/senders.hpp"
#include "simulate/draw.hpp"
#include "traces/schedule_tasks.hpp"

#include <fmt/format.h>

namespace param_sync::commands {
namespace {

using gpusock::program::print;
using schedule::Counts;
using schedule::Schedule;

struct ScheduleOptions {
  Source source;
  std::string json_file;
  std::string svg_file;
  TraceOptions traces;
  bool run = false;
  std::uint64_t given_size = 0;  // 0: not given
  std::string given_link;        // empty: not given
  bool deterministic = false;
  std::string plans;  // of other programs: files and folders

  std::uint64_t size_bytes() const { return given_size == 0 ? std::uint64_t{1} << 20 : given_size; }
  std::string link() const { return given_link.empty() ? "auto" : given_link; }
  /// Number of outputs that go to standard output.
  int on_standard_output() const { return (json_file == "-") + (svg_file == "-") + (traces.goal_file == "-"); }
};

/// Lists the ops of all lanes, one on each line, after a line about each rank's work.
std::string listing(const Schedule& schedule, const Counts& counts) {
  std::string text;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const schedule::Work& work = counts.ranks[rank];
    text += fmt::format("rank {}: sends {} chunks, receives {}, adds {}; memory: {} read, {} written\n", rank,
                        work.sent, work.received, work.reduced, work.reads, work.writes);
    const auto& lanes = schedule.ranks[rank].lanes;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      for (std::size_t index = 0; index < lanes[lane].size(); ++index) {
        std::string after;
        for (const schedule::OpRef& before : lanes[lane][index].after) {
          after += fmt::format("{} op {} of lane {}", after.empty() ? ", after" : " and", before.index, before.lane);
        }
        text += fmt::format("  lane {} op {}: {}{}\n", lane, index, describe(lanes[lane][index]), after);
      }
    }
  }
  return text;
}

/// Says what is wrong with the options of --plans, or that there is no schedule. Empty if nothing is.
std::string problem_of_plans(const ScheduleOptions& options) {
  const Source& source = options.source;
  if (options.plans.empty()) {
    const bool has_one = source.scheme.empty() != source.file.empty();
    return has_one ? "" : "give either --scheme or --schedule, or --plans";
  }
  if (!source.scheme.empty() || !source.file.empty()) return "give either --plans, or --scheme or --schedule";
  if (source.given.nodes != 0 || source.given.chunks != 0) return "--nodes and --chunks are for --scheme";
  if (!options.svg_file.empty()) return "--svg draws schedules, not --plans";
  return options.run ? "--run runs schedules, not --plans" : "";
}

/// Runs the schedule on sockets. Returns a line about the run. Throws Misuse or an error if it fails.
std::string run_on_sockets(const Schedule& schedule, const ScheduleOptions& options) {
  if (options.deterministic && !sums_in_rank_order(schedule)) {
    throw Misuse(fmt::format("{} does not add in the order of ranks for {} ranks. --scheme chain does", schedule.scheme,
                             schedule.workers));
  }
  executor::TrialSettings settings;
  settings.floats = options.size_bytes() / sizeof(float);
  settings.link = gpusock::parse_link(options.link());
  const executor::Trial trial = executor::try_out(schedule, settings);
  if (options.deterministic && !trial.in_rank_order) throw schedule::Error("the sums are not those in rank order");
  return fmt::format(
      "ran on {} floats, link {}: {:.3f} ms (median of {}); the results are right{}\n", settings.floats, options.link(),
      trial.median_s() * 1e3, trial.seconds.size(),
      trial.in_rank_order && !schedule::is_copied(schedule.result) ? ", bit for bit those of sums in rank order" : "");
}

int run_schedule(ScheduleOptions& options) {
  if (!options.plans.empty())
    return prove_foreign_plans({options.plans, options.json_file, options.traces, options.size_bytes()});
  const std::pair<Schedule, Counts> taken = take_schedule(options.source);
  const Schedule& schedule = taken.first;
  const Counts& counts = taken.second;
  const std::string about = summary(schedule, counts);
  const std::vector<TraceFile> traces = make_traces(
      [&schedule](const traces::Load& load) { return traces::tasks_of(schedule, load); }, options.size_bytes(),
      options.traces);
  if (!options.json_file.empty()) gpusock::program::write_file(options.json_file, to_json(schedule));
  if (!options.svg_file.empty()) gpusock::program::write_file(options.svg_file, simulate::draw(schedule, about));
  write_traces(traces);
  if (options.on_standard_output() > 0) return gpusock::program::kSuccess;
  print(about + "\n");
  const bool is_written = !options.json_file.empty() || !options.svg_file.empty() || !traces.empty();
  if (!is_written && !options.run) print(listing(schedule, counts));
  print("the checker finds it right\n");
  if (options.source.given.credits != 0)
    print(fmt::format("messages on their way to one owner at a time: {} at most\n", senders_at_once(schedule)));
  if (options.run) print(run_on_sockets(schedule, options));
  return gpusock::program::kSuccess;
}

std::optional<int> parse_schedule(int argc, char** argv, ScheduleOptions& options) {
  Arguments arguments(
      "Makes the schedule of a scheme, or takes one from a file; checks it and prints, writes or draws it. Or proves "
      "or "
      "refutes plans of other programs.");
  options.source.is_optional = true;
  add_source(arguments, options.source, false, all_schemes());
  arguments.json(options.json_file, "The schedule as JSON (docs/schedules.md); with --plans: what was found out");
  arguments.text("--plans", options.plans,
                 "Plans of MSCCL (.xml) and MSCCL++ (.json), instead: files and folders, with commas between them "
                 "(docs/foreign_plans.md); with --goal or --chakra: one file; -: standard input");
  arguments.text("--svg", options.svg_file, "Draw it here: ranks down, time across, an arrow for each message");
  add_traces(arguments, options.traces);
  arguments.flag("--run", options.run,
                 "Run it, all ranks in this process, and compare the result with sums of doubles");
  arguments
      .bytes("--size", options.given_size,
             "Bytes of each rank's tensor, for --run, --goal and --chakra; of --plans: of the larger one of input and "
             "output",
             4, std::uint64_t{1} << 30)
      .shown_default("1M");
  arguments.choice("--link", options.given_link, gpusock::program::link_names(), "What carries it, for --run")
      .shown_default("auto");
  arguments.flag("--deterministic", options.deterministic,
                 "With --run: sums are in the order of ranks, bit for bit; else it is an error");
  arguments.check([&options] { return problem_of_plans(options); });
  arguments.check([&]() -> std::string {
    if (options.run && options.on_standard_output() > 0) return "--run prints to standard output: write to a file";
    if (options.given_size != 0 && !options.run && !options.traces.given())
      return "--size is for --run, --goal and --chakra";
    if (!options.given_link.empty() && !options.run) return "--link is for --run";
    if (const std::string problem = problem_of_floats("--size", options.size_bytes()); !problem.empty()) return problem;
    if (options.deterministic && !options.run) return "--deterministic is for --run";
    if (const std::string problem = problem_of_traces(options.traces); !problem.empty()) return problem;
    return options.on_standard_output() > 1 ? "only one of --json, --svg and --goal can be standard output" : "";
  });
  return arguments.parse(argc, argv);
}

}  // namespace

int schedule_command(int argc, char** argv) {
  ScheduleOptions options;
  if (const auto status = parse_schedule(argc, argv, options)) return *status;
  return gpusock::program::run("param_sync", [&] { return run_schedule(options); });
}

}  // namespace param_sync::commands
