// Lasso by scheduled coordinate descent (STRADS: Kim et al., EuroSys 2016): a scheduler chooses coordinates that do not
// depend on each other, and ranks, each of which has a part of the samples, compute at the same time how to change
// them.
//   scheduled_lasso --ranks 2                              (all in this process, each with a context)
//   scheduled_lasso --ranks 2 --listen 127.0.0.1:7000      (the scheduler alone)
//   scheduled_lasso --join 127.0.0.1:7000                  (a rank; start all of them in this way)
// The objective is half the sum of the squares of (label - weights . features) over all samples, plus l1 times the sum
// of the weights' absolute values.
#include "examples/device_memory.hpp"
#include "examples/endpoints.hpp"
#include "examples/scheduled_lasso/report.hpp"

#include "program/arguments.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"
#include "program/socket_failure.hpp"

#include <gpusock/gpusock.hpp>
#include <gpusock/server.cuh>

#include <barrier>
#include <cstdint>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using examples::in_device;
using gpusock::Endpoint;

struct Options {
  unsigned ranks = 2, parallel = 16, timeout_s = 10;
  std::string listen, join, schedule = "strads", json_file;
  bool in_process = true;  // ranks are threads of this process
  lasso::Shape shape;
  std::uint64_t updates = 20'000, redraw_after = 0, redraw_seed = 2;
  double l1 = 0.1, dependence = 0.1, priority_min = 0.03, target = 0;
  bool operator==(const Options&) const = default;
};

constexpr std::uint64_t kSecondNs = 1'000'000'000;

std::string name_of(std::int32_t rank) {
  return rank == lasso::Failure::kScheduler ? "the scheduler" : "rank " + std::to_string(rank);
}

/// Throws an error that names the lost rank. `patience_s`: how long each call has waited.
void throw_if_lost(const lasso::Failure& failure, unsigned patience_s) {
  if (failure.error == 0) return;
  const std::string why = failure.error == -ETIMEDOUT ? "nothing came of it within " + std::to_string(patience_s) + " s"
                                                      : gpusock::describe_errno(-failure.error);
  throw std::runtime_error("lost " + name_of(failure.rank) + ": " + why);
}

/// The scheduler and the ranks of a process wait for each other between its phases. On a GPU, memory and streams are
/// made only while no kernel runs: in the first phase all make what they need to meet, in the second one they meet, in
/// the third one they make what they need to compute.
using Phases = std::barrier<>;

/// A rank, until the scheduler says that there are no more sets.
void run_rank(const Endpoint& scheduler, unsigned timeout_s, bool is_process, Phases& phases) {
  gpusock::Context context(gpusock::Options::from_env());
  gpusock::Stream stream(context);
  gpusock::Mapped<lasso::Welcome> welcome(context, 1);
  gpusock::Mapped<lasso::Planes> planes(context, 1);
  gpusock::Mapped<lasso::Failure> failure(context, 1);
  phases.arrive_and_wait();
  gpusock::launch(context, {.stream = &stream}, lasso::join, context.net(), scheduler, welcome.data(), planes.data(),
                  timeout_s * kSecondNs, failure.data());
  stream.synchronize();
  phases.arrive_and_wait();
  if (failure[0].error != 0) {
    throw gpusock::program::SocketFailure("joining the scheduler at " + scheduler.to_string(),
                                          gpusock::program::Attempt::connecting, -failure[0].error, scheduler);
  }
  if (is_process) {
    gpusock::program::print_now("rank " + std::to_string(welcome[0].rank) + " of " + std::to_string(welcome[0].ranks) +
                                '\n');
  }
  const lasso::Problem own = lasso::part_of(lasso::make(welcome[0].shape), welcome[0].rank, welcome[0].ranks);
  const auto columns = in_device(context, own.columns), residuals = in_device(context, own.labels);
  const unsigned patience_s = 2 * timeout_s + 1;  // the scheduler finds a lost rank before
  phases.arrive_and_wait();
  gpusock::launch(context, {.grid = 1, .block = lasso::kThreads, .stream = &stream}, lasso::follow,
                  lasso::Follower{context.net(), planes[0], patience_s * kSecondNs, own.samples, own.features,
                                  columns.data(), residuals.data(), failure.data()});
  stream.synchronize();
  if (failure[0].rank != lasso::Failure::kScheduler) {
    throw std::runtime_error("lost " + name_of(failure[0].rank) + ": the scheduler has told so");
  }
  throw_if_lost(failure[0], patience_s);
}

lasso::Policy policy_of(const std::string& schedule) {
  if (schedule == "strads") return lasso::Policy::strads;
  if (schedule == "uniform") return lasso::Policy::uniform;
  return schedule == "random" ? lasso::Policy::random : lasso::Policy::serial;
}

/// The scheduler, until its ranks have come and have computed.
lasso::Outcome run_scheduler(const Options& options, gpusock::Context& context, const gpusock::Listener& listener,
                             const lasso::Problem& problem, Phases& phases) {
  gpusock::Stream stream(context);
  gpusock::Mapped<lasso::Planes> planes(context, options.ranks);
  gpusock::Mapped<lasso::Failure> failure(context, 1);
  phases.arrive_and_wait();
  gpusock::launch(context, {.stream = &stream}, lasso::meet, context.net(), listener.socket,
                  lasso::Welcome{0, options.ranks, options.shape}, planes.data(), options.timeout_s * kSecondNs,
                  failure.data());
  stream.synchronize();
  phases.arrive_and_wait();
  if (failure[0].error == -ETIMEDOUT) {
    throw std::runtime_error(name_of(failure[0].rank) + " has not come within " + std::to_string(options.timeout_s) +
                             " s: start as many ranks with --join as --ranks says");
  }
  throw_if_lost(failure[0], options.timeout_s);
  if (!options.in_process) gpusock::program::print_now("all ranks have come\n");
  const auto columns = in_device(context, problem.columns);
  const auto priorities = in_device(context, std::vector<float>(problem.features, lasso::kNeverChanged));
  gpusock::DeviceBuffer<std::uint32_t> candidates(context, lasso::kCandidatesMax);
  gpusock::DeviceBuffer<unsigned char> are_dependent(context, lasso::kCandidatesMax * lasso::kCandidatesMax);
  const auto state = in_device(context,
                               std::vector<std::uint64_t>{options.schedule == "serial" ? 0 : options.shape.seed});
  gpusock::DeviceBuffer<float> weights(context, problem.features);
  gpusock::DeviceBuffer<lasso::Round> rounds(context, options.updates + 1);
  gpusock::DeviceBuffer<std::uint32_t> coordinates(context, options.updates + lasso::kSetMax);
  gpusock::Mapped<std::uint64_t> rounds_count(context, 1);
  lasso::Leader own;
  own.net = context.net();
  own.scheduler = {policy_of(options.schedule),
                   options.parallel,
                   static_cast<float>(options.dependence),
                   static_cast<float>(options.priority_min),
                   problem.samples,
                   problem.features,
                   columns.data(),
                   priorities.data(),
                   candidates.data(),
                   are_dependent.data(),
                   state.data()};
  own.planes = planes.data();
  own.ranks = options.ranks;
  own.timeout_ns = options.timeout_s * kSecondNs;
  own.l1 = static_cast<float>(options.l1 * lasso::l1_max(problem));
  own.target = options.target;
  own.updates_max = options.updates;
  own.redraw_after = options.redraw_after;
  own.redraw_seed = options.redraw_seed;
  own.weights = weights.data();
  own.rounds = rounds.data();
  own.coordinates = coordinates.data();
  own.rounds_count = rounds_count.data();
  own.failure = failure.data();
  phases.arrive_and_wait();
  gpusock::launch(context, {.grid = 1, .block = lasso::kThreads, .stream = &stream}, lasso::lead, own);
  stream.synchronize();
  throw_if_lost(failure[0], options.timeout_s);
  lasso::Outcome found{std::vector<lasso::Round>(rounds.size()), std::vector<std::uint32_t>(coordinates.size()),
                       std::vector<float>(weights.size())};
  rounds.copy_out(found.rounds);
  coordinates.copy_out(found.coordinates);
  weights.copy_out(found.weights);
  found.rounds.resize(rounds_count[0]);
  return found;
}

/// The scheduler, and the ranks too if they are threads of this process.
int lead(const Options& options) {
  std::optional<gpusock::program::JsonOutput> json;  // opened first: what cannot be written is told at once
  if (!options.json_file.empty()) json.emplace(options.json_file);
  const lasso::Problem problem = lasso::make(options.shape);
  gpusock::Context context(gpusock::Options::from_env());
  const gpusock::Listener listener = gpusock::open_listener(context, examples::stream_endpoint(options.listen));
  if (!options.in_process) gpusock::program::print_now("listening on " + listener.where.to_string() + '\n');
  std::vector<std::string> errors(options.ranks + 1);  // of the ranks, and of the scheduler
  Phases phases(options.in_process ? options.ranks + 1 : 1);
  const auto note = [&](std::size_t whose, auto work) {
    try {
      work();
    } catch (const std::exception& error) {
      phases.arrive_and_drop();  // the others go on, and find that this one is gone
      errors[whose] = (whose < options.ranks ? "rank " + std::to_string(whose) + ": " : "") + error.what();
    }
  };
  std::vector<std::jthread> ranks;
  for (unsigned rank = 0; rank < options.ranks && options.in_process; ++rank) {
    ranks.emplace_back([&, rank] { note(rank, [&] { run_rank(listener.where, options.timeout_s, false, phases); }); });
  }
  lasso::Outcome found;
  note(options.ranks, [&] { found = run_scheduler(options, context, listener, problem, phases); });
  ranks.clear();  // waits for all
  std::string all;
  for (const std::string& error : errors) all += (all.empty() || error.empty() ? "" : "; ") + error;
  if (!all.empty()) throw std::runtime_error(all);
  if (json) {
    json->write(lasso::json_of(found));
    json->close();
  }
  lasso::report(problem, found);
  return gpusock::program::kSuccess;
}

int solve(const Options& options) {
  if (options.join.empty()) return lead(options);
  Phases alone(1);
  run_rank(examples::stream_endpoint(options.join), options.timeout_s, true, alone);
  return gpusock::program::kSuccess;
}

std::string problem_of(const Options& options) {
  const lasso::Shape& shape = options.shape;
  if (std::uint64_t{shape.groups} * shape.group_features > shape.features) {
    return "--groups x --group-features are more than --features";
  }
  if (options.ranks > shape.samples) return "--ranks: each one needs a sample";
  if (options.parallel > shape.features) return "--parallel is more than --features";
  if (options.redraw_after == 0 && options.redraw_seed != Options{}.redraw_seed) {
    return "--redraw-seed goes with --redraw-after: say after how many updates";
  }
  if (options.redraw_after != 0 && options.schedule == "serial") {
    return "--redraw-after: --schedule serial draws no sets; take another one";
  }
  Options of_rank;
  of_rank.join = options.join, of_rank.timeout_s = options.timeout_s;
  if (!options.join.empty() && !(options == of_rank)) {
    return "--join goes with --timeout-s alone: the scheduler tells the rest";
  }
  return gpusock::program::problem_of_memory((options.ranks + 2) * std::uint64_t{shape.samples} * shape.features * 4,
                                             "--samples x --features x --ranks");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  gpusock::program::Arguments arguments(
      "Lasso by coordinate descent: a scheduler lets ranks change coordinates at the same time that do not depend on "
      "each other.");
  arguments.number("--ranks", options.ranks, "Each has a part of the samples", 1u, 64u);
  arguments.text("--listen", options.listen, "HOST:PORT: this is the scheduler alone, and ranks join it there");
  arguments.text("--join", options.join, "HOST:PORT of a scheduler: this is a rank, and the scheduler tells the rest");
  arguments.choice("--schedule", options.schedule, {"strads", "uniform", "random", "serial"},
                   "uniform: without priorities; random: any coordinates; serial: one at a time");
  arguments.number("--parallel", options.parallel, "The most coordinates at a time", 1u, lasso::kSetMax);
  arguments.number("--dependence", options.dependence, "Coordinates of a set have a smaller |x_j . x_k|", 0.0, 2.0);
  arguments.number("--priority-min", options.priority_min, "A priority is this plus the size of the last change", 1e-9,
                   1e3);
  arguments.number("--updates", options.updates, "Of coordinates, in all rounds", std::uint64_t{1},
                   std::uint64_t{1} << 24);
  arguments.number("--target", options.target, "Ends with an objective so low", 0.0, 1e12);
  arguments.number("--l1", options.l1, "Weight of the L1 norm; with 1 or more all weights are 0", 0.0, 10.0);
  arguments.number("--samples", options.shape.samples, "Random ones, of all ranks", 16u, 1u << 20);
  arguments.number("--features", options.shape.features, "Of which a twentieth matter", 16u, 1u << 20);
  arguments.number("--groups", options.shape.groups, "Of features that are nearly the same", 0u, 1u << 20);
  arguments.number("--group-features", options.shape.group_features, "Features of a group", 1u, 1u << 20);
  arguments.number("--correlation", options.shape.correlation, "Of two features of a group", 0.0f, 1.0f);
  arguments.number("--seed", options.shape.seed, "Of samples and sets", std::uint64_t{0}, ~std::uint64_t{0});
  arguments.number(
      "--redraw-after", options.redraw_after,
      "After so many updates, sets are drawn with --redraw-seed: the same run so far, another future; 0: never",
      std::uint64_t{0}, std::uint64_t{1} << 24);
  arguments.number("--redraw-seed", options.redraw_seed, "Of sets after --redraw-after", std::uint64_t{0},
                   ~std::uint64_t{0});
  arguments.json(options.json_file, "All rounds: the objective, and the updates of coordinates before");
  arguments.number("--timeout-s", options.timeout_s, "Seconds for ranks to come, and for each round", 1u, 3600u);
  arguments.check([&] { return problem_of(options); });
  arguments.check([&] {
    options.in_process = options.listen.empty();
    if (options.in_process) options.listen = "127.0.0.1:0";
    const std::string& where = options.join.empty() ? options.listen : options.join;
    return examples::problem_of_endpoint([&] { return examples::stream_endpoint(where); });
  });
  arguments.check(gpusock::program::problem_of_environment);
  if (const auto status = arguments.parse(argc, argv)) return *status;
  return gpusock::program::run("scheduled_lasso", [&] { return solve(options); });
}
