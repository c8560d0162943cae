// Runs seeds of the deterministic simulation; see docs/decisions/014-simulation.md.
#include "program/arguments.hpp"
#include "tests/simulation/run.hpp"
#include "tests/simulation/shrink.hpp"
#include "tests/support/sim/planted.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

using namespace gpusock;

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string seeds = "1..10000";
  std::string seed;
  int minutes = 0;
  int seconds_max = 0;
  int bug = 0;
  bool verbose = false;
  bool trace = false;
  bool no_shrink = false;
  std::string connections, faults;
  std::string denied;
  sim::Shortage shortage;
  int every = 1;
  std::uint64_t bytes_max = ~std::uint64_t{0};
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool read_range(const std::string& text, std::uint64_t& first, std::uint64_t& last) {
  char* end = nullptr;
  first = last = std::strtoull(text.c_str(), &end, 10);
  if (end == text.c_str()) return false;
  if (*end == '\0') return true;
  if (std::string_view(end).substr(0, 2) != "..") return false;
  const char* second = end + 2;
  last = std::strtoull(second, &end, 10);
  return end != second && *end == '\0' && first <= last;
}

sim::Cut cut_of(const Options& options) { return {options.connections, options.faults, options.bytes_max}; }

/// Runs one seed twice and tells whether both went the same way.
bool repeats(const sim::Plan& plan) {
  const sim::Outcome first = sim::run(plan), second = sim::run(plan);
  return first.trace == second.trace && first.turns == second.turns && first.bytes == second.bytes &&
         first.problem == second.problem;
}

int report(const Options& options, std::uint64_t seed, const std::string& problem) {
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), problem.c_str());
  sim::Cut cut = cut_of(options);
  if (!options.no_shrink) cut = sim::shrink(seed, cut, problem);
  const sim::Plan plan = sim::cut_down(sim::make_plan(seed), cut);
  std::printf("%s", sim::describe(plan).c_str());
  std::printf("replay: simulation%s --seed %llu%s --verbose\n",
              options.bug == 0 ? "" : (" --bug " + std::to_string(options.bug)).c_str(),
              static_cast<unsigned long long>(seed), sim::to_arguments(cut).c_str());
  return program::kFailure;
}

int run_one(const Options& options, std::uint64_t seed) {
  const sim::Plan plan = options.shortage ? sim::make_plan(seed, options.shortage)
                                          : sim::cut_down(sim::make_plan(seed), cut_of(options));
  if (options.verbose) std::printf("%s", sim::describe(plan).c_str());
  const sim::Outcome outcome = sim::run(plan, options.verbose);
  if (options.trace) std::printf("trace %016llx\n", static_cast<unsigned long long>(outcome.trace));
  std::printf("seed %llu: %s; %llu turns, %.3f s simulated, %llu connections, %llu bytes\n",
              static_cast<unsigned long long>(seed), outcome.problem.empty() ? "ok" : outcome.problem.c_str(),
              static_cast<unsigned long long>(outcome.turns), static_cast<double>(outcome.simulated_ns) * 1e-9,
              static_cast<unsigned long long>(outcome.connections), static_cast<unsigned long long>(outcome.bytes));
  if (outcome.problem.empty()) return program::kSuccess;
  return options.verbose || options.shortage ? program::kFailure : report(options, seed, outcome.problem);
}

/// The seed with this shortage; prints what went wrong. `denied`: something was denied at all.
bool holds_with(const Options& options, std::uint64_t seed, const sim::Shortage& shortage, bool& denied) {
  const sim::Outcome outcome = sim::run(sim::make_plan(seed, shortage));
  denied = outcome.denied;
  if (outcome.problem.empty()) return true;
  const std::string what = to_string(shortage);
  std::printf("seed %llu, denied %s: %s\n", static_cast<unsigned long long>(seed), what.c_str(),
              outcome.problem.c_str());
  std::printf("replay: simulation%s --seed %llu --denied %s --verbose\n",
              options.bug == 0 ? "" : (" --bug " + std::to_string(options.bug)).c_str(),
              static_cast<unsigned long long>(seed), what.c_str());
  return false;
}

/// Denies each seed its allocations and system calls, one at a time; then all from each one on.
int run_shortages(const Options& options, std::uint64_t first, std::uint64_t last) {
  const auto start = Clock::now();
  const double limit_s = 60.0 * options.minutes + options.seconds_max;
  std::uint64_t runs = 0, seeds = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed, ++seeds) {
    for (const auto of : {sim::Shortage::Of::memory, sim::Shortage::Of::calls, sim::Shortage::Of::interrupts}) {
      for (const bool all : {false, true}) {
        if (all && of == sim::Shortage::Of::interrupts) continue;  // such a program does nothing else any more
        bool denied = true;
        for (std::uint64_t nth = 1 + seed % options.every; denied; nth += options.every, ++runs) {
          if (limit_s != 0 && seconds_since(start) > limit_s)
            denied = false;
          else if (!holds_with(options, seed, {of, nth, all}, denied))
            return program::kFailure;
        }
      }
    }
    if (limit_s != 0 && seconds_since(start) > limit_s) break;
  }
  std::printf("%llu seeds from %llu on: ok; %llu shortages, %.1f s\n", static_cast<unsigned long long>(seeds),
              static_cast<unsigned long long>(first), static_cast<unsigned long long>(runs), seconds_since(start));
  return program::kSuccess;
}

int run_many(const Options& options, std::uint64_t first, std::uint64_t last) {
  const auto start = Clock::now();
  const double limit_s = options.minutes != 0 ? 60.0 * options.minutes : options.seconds_max;
  constexpr std::uint64_t kRepeatEvery = 500;
  std::uint64_t turns = 0, connections = 0, bytes = 0, seeds = 0;
  double simulated_s = 0;
  for (std::uint64_t seed = first; seed <= last && (limit_s == 0 || seconds_since(start) < limit_s); ++seed, ++seeds) {
    const sim::Plan plan = sim::make_plan(seed);
    const sim::Outcome outcome = sim::run(plan);
    if (!outcome.problem.empty()) return report(options, seed, outcome.problem);
    if (seed % kRepeatEvery == 0 && !repeats(plan))
      return report(options, seed, "the same seed went another way the second time");
    turns += outcome.turns;
    connections += outcome.connections;
    bytes += outcome.bytes;
    simulated_s += static_cast<double>(outcome.simulated_ns) * 1e-9;
  }
  std::printf("%llu seeds from %llu on: ok; %llu connections, %.1f MB, %.0f s simulated, %llu turns, %.1f s\n",
              static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(connections), static_cast<double>(bytes) * 1e-6, simulated_s,
              static_cast<unsigned long long>(turns), seconds_since(start));
  return program::kSuccess;
}

/// What goes wrong first where one of these is denied after the other, one in `every`, or "".
std::string problem_in_shortages(std::uint64_t seed, sim::Shortage::Of of, std::uint64_t every) {
  bool denied = true;
  for (std::uint64_t nth = 1 + seed % every; denied; nth += every) {
    const sim::Outcome outcome = sim::run(sim::make_plan(seed, {of, nth, false}));
    if (!outcome.problem.empty()) return outcome.problem;
    denied = outcome.denied;
  }
  return {};
}

/// What goes wrong with this seed in runs of that kind, or "".
std::string problem_of(const Options& options, std::uint64_t seed, sim::BugShows where) {
  const auto every = static_cast<std::uint64_t>(options.every);
  switch (where) {
    case sim::BugShows::in_seeds:
      break;
    case sim::BugShows::in_memory:
      return problem_in_shortages(seed, sim::Shortage::Of::memory, every);
    case sim::BugShows::in_calls:
      return problem_in_shortages(seed, sim::Shortage::Of::calls, every);
  }
  return sim::run(sim::make_plan(seed)).problem;
}

/// At which seed each planted bug is found, in the runs that show it.
int prove(const Options& options, std::uint64_t first, std::uint64_t last) {
  static constexpr const char* kWhere[] = {"", ", denied memory", ", denied calls"};  // by BugShows
  int caught = 0;
  const int only = options.bug;  // 0: all
  for (int number = std::max(1, only); number <= (only == 0 ? sim::kPlantedBugs : only); ++number) {
    const sim::PlantedBug& bug = sim::planted_bug_of(number);
    sim::plant(number);
    std::uint64_t seed = first;
    std::string problem = problem_of(options, seed, bug.where);
    while (problem.empty() && seed < last) problem = problem_of(options, ++seed, bug.where);
    sim::plant(0);
    if (problem.empty()) {
      std::printf("bug %2d: NOT caught by %llu seeds: %s\n", number, static_cast<unsigned long long>(last - first + 1),
                  bug.name);
    } else if (!problem_of(options, seed, bug.where).empty()) {
      std::printf("bug %2d: seed %llu fails without it, too: fix that first\n", number,
                  static_cast<unsigned long long>(seed));
    } else {
      std::printf("bug %2d: caught at seed %llu%s (%s): %s\n", number, static_cast<unsigned long long>(seed),
                  kWhere[static_cast<int>(bug.where)], problem.c_str(), bug.name);
      ++caught;
    }
    std::fflush(stdout);
  }
  const int all = only == 0 ? sim::kPlantedBugs : 1;
  std::printf("planted bugs caught: %d/%d\n", caught, all);
  return caught == all ? program::kSuccess : program::kFailure;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  bool all_bugs = false, shortages = false;
  program::Arguments arguments(
      "Runs gpusock in a simulation, where a seed decides all that happens, and checks what must always hold.",
      "A seed that fails is made smaller, and the command that replays it is printed.");
  arguments.text("--seeds", options.seeds, "run these, as 1..10000");
  arguments.text("--seed", options.seed, "run this one").shown_default("");
  arguments.number("--minutes", options.minutes, "run fresh seeds for so long", 0, 100'000);
  arguments.number("--seconds-max", options.seconds_max,
                   "stop behind the seed that is run when so many are over; 0: never", 0, 1'000'000);
  arguments.flag("--verbose", options.verbose, "tell every call and fault of --seed");
  arguments.flag("--trace", options.trace, "print a number that is equal for equal runs of --seed");
  arguments.number("--bug", options.bug, "with this planted bug; 0: none", 0, sim::kPlantedBugs);
  arguments.flag("--planted-bugs", all_bugs, "which of --seeds catches each planted bug, or the one of --bug");
  arguments.flag("--shortages", shortages,
                 "deny each of --seeds each of its allocations and system calls: one, then all from there on");
  arguments.number("--every", options.every,
                   "with --shortages and --planted-bugs: deny one in so many, others for each seed", 1, 1000);
  arguments.text("--denied", options.denied, "deny --seed this, as memory:17 or calls:3+ (all from the third on)")
      .shown_default("nothing");
  arguments.flag("--no-shrink", options.no_shrink, "do not make a seed that fails smaller");
  arguments.text("--connections", options.connections, "only these connections of --seed, as 0,2").shown_default("all");
  arguments.text("--faults", options.faults, "only these faults of --seed, as 0,2; none: no faults")
      .shown_default("all");
  arguments
      .number("--bytes-max", options.bytes_max, "send no more than this on each way of --seed", std::uint64_t{0},
              ~std::uint64_t{0})
      .shown_default("all");
  std::uint64_t first = 0, last = 0;
  arguments.check([&]() -> std::string {
    if (!options.seed.empty() && (!read_range(options.seed, first, last) || first != last))
      return "--seed takes a number";
    if (options.seed.empty() && !read_range(options.seeds, first, last)) return "--seeds takes numbers, as 1..10000";
    if (!sim::parse(options.denied, options.shortage)) return "--denied takes what and which, as memory:17 or calls:3+";
    return {};
  });
  if (const auto status = arguments.parse(argc, argv)) return *status;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (all_bugs) return prove(options, first, last);
  sim::plant(options.bug);
  if (!options.seed.empty()) return run_one(options, first);
  if (options.minutes != 0) {
    first = std::uint64_t{std::random_device{}()} << 20;
    last = ~std::uint64_t{0};
    std::printf("fresh seeds from %llu on\n", static_cast<unsigned long long>(first));
  }
  return shortages ? run_shortages(options, first, last) : run_many(options, first, last);
}
