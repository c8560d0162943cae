#include "mutation.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>

namespace gpusock::model {
namespace {

/// Stores that no other thread can tell from ones of a slower thread when they come behind the next step: all cases
/// must hold then. What is tried in its place.
struct Instead {
  const char* file;
  const char* text;  ///< of the line
  Weakening mutant;
  const char* why;
};
constexpr Instead kInstead[] = {
    {"ringbuf/handle_queue.hpp", "Q1, pairs with Q2", Weakening::left_out, "a handle may be granted later"},
    {"host_proxy/table/proxy_slots.cpp", "words.", Weakening::left_out,
     "the proxy reads it itself before it tells anybody of it"},
    {"host_proxy/table/proxy_slots.cpp", "T3, pairs with T4", Weakening::too_late,
     "a status may be told later, but not behind Q1"},
    {"host_proxy/table/table_memory.cpp", "T5, pairs with T6", Weakening::left_out, "a context may end later"},
    {"gpusock/detail/", "T8, pairs with T7", Weakening::left_out, "a lock may be held longer"},
    {"gpusock/detail/", "T11, pairs with T10", Weakening::left_out, "a lock may be held longer"},
    {"gpusock/detail/", "T13, pairs with T12", Weakening::left_out, "a reservation may be held longer"},
    {"gpusock/detail/sockets.cuh", "options.store(", Weakening::left_out, "it is published a step later"},
    {"gpusock/detail/poll_set.inl", "shared.store(generation", Weakening::left_out,
     "nobody has the handle yet, or it is closed already"},
    {"gpusock/detail/poll_set.inl", "polled.store(generation", Weakening::left_out, "as the other one"},
    {"ringbuf/bar_write.hpp", "X1, pairs with", Weakening::left_out, "a BAR write may come later"},
    {"host_proxy/proxy/poll_sets.cpp", ".store(entry", Weakening::left_out, "X1 comes later"},
    {"host_proxy/table/proxy_slots.cpp", "*bar_word", Weakening::left_out, "X1 comes later"},
    {"gpusock/detail/socket_options.inl", "options.store(", Weakening::left_out,
     "the lock is held until behind the next step"},
    {"tests/support/mlx5/send_queue.hpp", "G2, after G1", Weakening::left_out, "a doorbell may be rung later"},
    {"tests/support/mlx5/completion_queue.hpp", "G4", Weakening::left_out, "the NIC may learn of room later"},
    {"apps/param_sync/training/state.cuh", "S12, pairs with S9", Weakening::left_out, "a run may end later"},
    {"apps/param_sync/training/state.cuh", "S18, pairs with S19", Weakening::left_out, "the host may hear later"},
    {"apps/param_sync/training/pool_words.cuh", "O1, pairs with O2", Weakening::left_out, "a stay may begin later"},
    {"param_sync/executor/handover.cuh", "times.ended_ns).store", Weakening::left_out,
     "when a step ended may be told later"},
    {"param_sync/wire/shared_socket.cuh", "U1, pairs with U2", Weakening::left_out, "a connection may open later"},
    {"param_sync/executor/lane.cuh", "L1", Weakening::left_out, "another lane may go on later"},
    {"param_sync/executor/lane.cuh", "the next run's kernel", Weakening::left_out, "that kernel comes later"},
    {"param_sync/executor/lane.cuh", "L7, pairs with L8", Weakening::left_out, "the host may hear later"},
    {"param_sync/executor/handover.cuh", "L12, pairs with L13", Weakening::left_out, "a version may be told later"},
    {"param_sync/executor/admission/credits.cuh", "wanted.store(", Weakening::left_out, "others may give way later"},
    {"param_sync/executor/resident.cuh", "positions", Weakening::left_out, "how far a lane is may be told later"},
    {"param_sync/wire/failure_record.cuh", "F2, pairs with F3", Weakening::left_out, "a failure may be told later"},
    {"apps/param_sync/arithmetic/step_board.cuh", "S14, pairs with S15", Weakening::left_out,
     "the host may hear later"},
};

const Instead* may_be_late(const Tables& tables, const Site& site) {
  const std::string source = tables.source_of(site), text = tables.text_of(site);
  for (const Instead& one : kInstead) {
    if (site.operation == Operation::store && source.rfind(one.file, 0) == 0 &&
        text.find(one.text) != std::string::npos)
      return &one;
  }
  return nullptr;
}

/// True for code that a rule of the memory model is about: what tests bring along has no mutants, but for the queues
/// that a link is to use.
bool is_tried(const std::string& source) {
  return source.find("tests/") == std::string::npos || source.find("tests/support/mlx5/") != std::string::npos;
}

/// What comes in the place of swapping a store with the next step.
Weakening swap_of(const Tables& tables, const Site& site) {
  const Instead* instead = may_be_late(tables, site);
  return instead == nullptr ? Weakening::late : instead->mutant;
}

std::vector<Weakening> weakenings(const Tables& tables, const Site& site) {
  std::vector<Weakening> result;
  if (site.operation == Operation::fence) {
    if (site.order == Order::seq_cst) result.push_back(Weakening::not_sequential);
    result.push_back(Weakening::no_fence);
    return result;
  }
  if (acquires(site.order)) result.push_back(Weakening::no_acquire);
  if (releases(site.order)) result.push_back(Weakening::no_release);
  if (acquires(site.failure)) result.push_back(Weakening::no_failure_acquire);
  if (site.operation == Operation::store) result.push_back(swap_of(tables, site));
  // Nothing is weaker than relaxed: but does anybody notice the access, or that it is one.
  if (result.empty() && !tables.label_of(site).empty()) {
    result.push_back(site.operation == Operation::modify ? Weakening::apart : Weakening::left_out);
  }
  return result;
}

std::string told(const Case& one, const Verdict& verdict) {
  return one.name + ": " + verdict.failure.substr(0, verdict.failure.find('\n'));
}

/// The first case that fails in that many random executions, and how; empty: none does.
std::string caught_by_chance(const std::vector<const Case*>& cases, std::uint64_t seed, std::uint64_t executions) {
  for (const Case* one : cases) {
    if (const Verdict verdict = sample(*one, seed + executions, executions); !verdict.ok) return told(*one, verdict);
  }
  return {};
}

/// The first case that fails, and how; empty: none does. Most mutants fall in a few random executions of one case or
/// another.
std::string caught_by(const std::vector<const Case*>& cases, const Limits& limits) {
  for (const std::uint64_t executions : {8, 40, 200, 1000}) {
    if (std::string result = caught_by_chance(cases, limits.seed, executions); !result.empty()) return result;
  }
  for (const Case* one : cases) {
    if (const Verdict verdict = check(*one, limits); !verdict.ok) return told(*one, verdict);
  }
  return {};
}

}  // namespace

bool try_mutants(const Users& users, const Tables& tables, const Limits& limits) {
  std::vector<const Site*> order;
  for (const auto& [site, its] : users) {
    if (is_tried(tables.source_of(*site))) order.push_back(site);
  }
  std::sort(order.begin(), order.end(),
            [&](const Site* a, const Site* b) { return std::tie(a->file, a->line) < std::tie(b->file, b->line); });

  Limits quick = limits;
  quick.must_see_all = quick.traces = false;
  int caught = 0, tried = 0;
  std::set<std::string> rows;  // that have a mutant
  std::printf("%-5s %-34s %-18s %-28s %s\n", "row", "source", "access", "mutant", "caught by");
  for (const Site* site : order) {
    const std::string label = tables.label_of(*site);
    for (const Weakening weakening : weakenings(tables, *site)) {
      sites().try_mutant({site, weakening});
      std::string result = caught_by(users.at(site), quick);
      sites().try_mutant({});
      ++tried;
      caught += result.empty() ? 0 : 1;
      rows.insert(label);
      if (result.empty()) result = "SURVIVES";
      std::printf("%-5s %-34s %-18s %-28s %s\n", label.empty() ? "-" : label.c_str(), tables.source_of(*site).c_str(),
                  to_string(site->operation), to_string(weakening), result.c_str());
      std::fflush(stdout);
    }
  }
  bool all_rows = true;
  for (const Site* site : order) {
    const Instead* instead = may_be_late(tables, *site);
    if (instead == nullptr) continue;
    sites().try_mutant({site, Weakening::late});
    const std::string result = caught_by_chance(users.at(site), limits.seed,
                                                static_cast<std::uint64_t>(50 * limits.scale));
    sites().try_mutant({});
    if (result.empty()) continue;
    std::printf("FAILED %s may not come behind the next step (%s): %s\n", tables.source_of(*site).c_str(), instead->why,
                result.c_str());
    all_rows = false;
  }
  for (const Row& row : tables.rows()) {
    if (rows.count(row.label) != 0) continue;
    std::printf("FAILED %s: row %s (%s) has no mutant\n", row.file.c_str(), row.label.c_str(), row.operation.c_str());
    all_rows = false;
  }
  std::printf("mutants: %d/%d caught\n", caught, tried);
  return caught == tried && all_rows;
}

}  // namespace gpusock::model
