#include "machine.hpp"

#include <algorithm>

namespace gpusock::model {

using Inside = Machine::Inside;

Verdict check(const Case& one, const Limits& limits) {
  Explorer explorer;
  Machine machine(explorer);
  Verdict verdict;
  std::vector<bool> seen(one.outcomes.size());
  const auto executions_max = static_cast<std::uint64_t>(static_cast<double>(one.executions_max) * limits.scale);
  const auto run_once = [&] {
    const auto outcome = machine.execute(one);
    ++(outcome || !machine.failure().empty() ? verdict.executions : verdict.pruned);
    verdict.failure = machine.failure();
    if (!outcome || !verdict.failure.empty()) return verdict.failure.empty();
    const auto found = std::find(one.outcomes.begin(), one.outcomes.end(), *outcome);
    if (found == one.outcomes.end()) {
      verdict.failure = "an outcome that is not legal: " + *outcome;
      return false;
    }
    seen[static_cast<std::size_t>(found - one.outcomes.begin())] = true;
    return true;
  };

  explorer.enumerate();
  for (;;) {
    verdict.ok = run_once();
    if (!verdict.ok || verdict.executions + verdict.pruned >= executions_max) break;
    if (!explorer.next()) {
      verdict.complete = true;
      break;
    }
  }
  if (verdict.ok && !verdict.complete) {  // too many: the rest is sampled
    explorer.randomize(limits.seed);
    for (std::uint64_t i = 0; i < executions_max && verdict.ok; ++i) verdict.ok = run_once();
  }
  verdict.steps = machine.steps();
  if (!verdict.ok && limits.traces) verdict.failure += "\n" + machine.trace();
  for (std::size_t i = 0; verdict.ok && limits.must_see_all && i < seen.size(); ++i) {
    if (seen[i]) continue;
    verdict.ok = false;
    verdict.failure = "a legal outcome that no execution has: " + one.outcomes[i];
  }
  return verdict;
}

void require(bool holds, std::string_view what) {
  const Inside machine;
  if (!holds && machine) machine->fail("does not hold: " + std::string(what));
}

void give_way() {
  const Inside machine;
  if (machine) machine->give_way();
}

std::uint64_t now_ns() {
  const Inside machine;
  return machine ? machine->now_ns() : kEarly;
}

std::uint64_t load(std::uint64_t* word, Order order, Where where) {
  const Inside machine;
  return machine ? machine->load(word, order, sites().at(where, Operation::load, order)) : *word;
}

void store(std::uint64_t* word, std::uint64_t value, Order order, Where where) {
  const Inside machine;
  if (machine) {
    machine->store(word, value, order, sites().at(where, Operation::store, order));
  } else {
    *word = value;
  }
}

std::uint64_t modify(std::uint64_t* word, const std::function<std::uint64_t(std::uint64_t)>& change, Order order, Where where) {
  const Inside machine;
  if (machine) return machine->modify(word, change, order, sites().at(where, Operation::modify, order));
  const std::uint64_t before = *word;
  *word = change(before);
  return before;
}

bool compare_exchange(std::uint64_t* word, std::uint64_t& expected, std::uint64_t desired, bool weak, Order success, Order failure,
                      Where where) {
  const Inside machine;
  if (machine) {
    return machine->compare_exchange(word, expected, desired, weak, success, failure,
                                     sites().at(where, Operation::modify, success, failure));
  }
  if (*word != expected) {
    expected = *word;
    return false;
  }
  *word = desired;
  return true;
}

void fence(Order order, Where where) {
  const Inside machine;
  if (machine) machine->fence(order, sites().at(where, Operation::fence, order));
}

void plain_access(const void* address, std::size_t bytes, bool writes) {
  const Inside machine;
  machine->plain(address, bytes, writes);
}

}  // namespace gpusock::model
