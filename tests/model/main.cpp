// Checks the lock-free code in all orders and with all stale reads that its orderings allow, and whether the orderings
// matter.
#include "cases.hpp"
#include "mutation.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

namespace gpusock::model {
namespace {

constexpr const char* kHelp =
    R"(usage: model_check [--mutants] [--only TEXT] [--scale X] [--seed N] [--source FOLDER] [--help]

Explores the executions of the lock-free code in ringbuf, socket_table, host_proxy, gpusock, param_sync and apps/param_sync: every order of its atomic accesses, every stale
value that they may read, and races on plain memory.
  --mutants         then weaken every ordering, one at a time; each must make a case fail
  --only TEXT       cases whose name contains it
  --scale X         explore X times as many executions of cases that have too many for all (1)
  --seed N          of the executions that are sampled there (1)
  --source FOLDER   the project's sources, whose ordering tables are compared with what was reached (the folder this is run in)
Exit status: 0 all holds, 1 something does not, 2 misuse.
)";

/// Accesses that no case reaches, and why.
const std::vector<std::string> kUnchecked = {
    // Their partner is a NIC, or libfabric.
    "host_proxy/links/one_sided_link.cpp", "host_proxy/links/fabric/transport.cpp",
    // Its partner is a copy engine, which has a queue of its own: ring.* has the same two accesses.
    "host_proxy/memory/ring_mirror.cpp",
    // Words of the application, and one beside the socket calls.
    "gpusock/compat/gpunet_memory.cuh", "gpusock/compat/gpunet_state.cuh",
    // Words of groups that serve; ThreadSanitizer runs their tests.
    "gpusock/server/accepting.cuh", "gpusock/server/loop.cuh", "gpusock/server/shared_seats.cuh"};

struct Options {
  bool mutants = false;
  std::string only;
  std::string source = ".";
  Limits limits;
};

/// False: misuse.
bool parse(int count, char** arguments, Options& options) {
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    const char* value = i + 1 < count ? arguments[i + 1] : nullptr;
    char* end = nullptr;
    if (name == "--mutants") {
      options.mutants = true;
      continue;
    }
    if (value == nullptr) return false;
    if (name == "--only") {
      options.only = value;
    } else if (name == "--source") {
      options.source = value;
    } else if (name == "--scale") {
      options.limits.scale = std::strtod(value, &end);
      if (*end != 0 || !(options.limits.scale > 0)) return false;
    } else if (name == "--seed") {
      options.limits.seed = std::strtoull(value, &end, 10);
      if (*end != 0) return false;
    } else {
      return false;
    }
    ++i;
  }
  return true;
}

std::vector<Case> production_cases() {
  std::vector<Case> all;
  for (const auto part : {ring_cases, queue_cases, sleep_cases, record_cases, cost_cases, socket_cases, poll_set_cases,
                          param_sync_cases, executor_cases, nic_cases, ticket_lock_cases}) {
    for (Case& one : part()) all.push_back(std::move(one));
  }
  return all;
}

class Report {
 public:
  explicit Report(const Options& options) : options_(options) {}

  /// Checks a case, which must hold, or must not.
  void check_one(const Case& one, bool must_hold) {
    if (one.name.find(options_.only) == std::string::npos) return;
    sites().forget_uses();
    const Verdict verdict = check(one, options_.limits);
    ++cases_;
    const bool good = verdict.ok == must_hold;
    failures_ += good ? 0 : 1;
    executions_ += verdict.executions;
    steps_ += verdict.steps;
    std::printf("%-6s %-44s %9llu executions%s, %llu accesses%s\n", good ? "ok" : "FAILED", one.name.c_str(),
                static_cast<unsigned long long>(verdict.executions), verdict.complete ? " (all)" : "",
                static_cast<unsigned long long>(verdict.steps),
                must_hold ? "" : (", found: " + verdict.failure.substr(0, verdict.failure.find('\n'))).c_str());
    if (!good && must_hold) std::printf("%s\n", verdict.failure.c_str());
    if (!good && !must_hold) std::printf("  what is wrong with it was not found\n");
  }

  void compare_tables(const Tables& tables) {
    for (const std::string& difference : tables.differences(kUnchecked)) {
      ++failures_;
      std::printf("FAILED %s\n", difference.c_str());
    }
  }

  /// Adds the case to those that reach the lines that it has reached.
  void note_uses(const Case& one, Users& users) const {
    for (const Site& site : sites().all()) {
      if (site.uses != 0 && one.name.find(options_.only) != std::string::npos) users[&site].push_back(&one);
    }
  }

  /// Does all hold. The line is for programs, too.
  bool finish() const {
    std::printf("%llu executions\nmodel: %d configurations, %llu states, %d violations\n",
                static_cast<unsigned long long>(executions_), cases_, static_cast<unsigned long long>(steps_),
                failures_);
    return failures_ == 0;
  }

 private:
  const Options& options_;
  int failures_ = 0;
  int cases_ = 0;
  std::uint64_t executions_ = 0;
  std::uint64_t steps_ = 0;
};

int run(const Options& options) {
  const Tables tables(options.source);
  const std::vector<Case> cases = production_cases();
  Report report(options);
  Users users;
  for (const Case& one : litmus_cases()) report.check_one(one, true);
  for (const Case& one : broken_cases()) report.check_one(one, false);
  for (const Case& one : cases) {
    report.check_one(one, true);
    report.note_uses(one, users);
  }
  if (options.only.empty()) report.compare_tables(tables);
  const bool holds = report.finish();
  return holds && (!options.mutants || try_mutants(users, tables, options.limits)) ? 0 : 1;
}

}  // namespace
}  // namespace gpusock::model

int main(int count, char** arguments) {
  gpusock::model::Options options;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--help") == 0) return std::fputs(gpusock::model::kHelp, stdout), 0;
  }
  if (!gpusock::model::parse(count, arguments, options)) return std::fputs(gpusock::model::kHelp, stderr), 2;
  try {
    return gpusock::model::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "model_check: %s\n", error.what());
    return 1;
  }
}
