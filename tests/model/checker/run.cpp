#include "machine.hpp"

#include <algorithm>

namespace gpusock::model {

using Inside = Machine::Inside;

namespace {

class Check {
 public:
  explicit Check(const Case& one) : one_(one), seen_(one.outcomes.size()) {}

  /// All executions, if they are no more than that many; are they. Both end with a failure.
  bool enumerate(std::uint64_t executions_max) {
    explorer_.enumerate();
    while (run_once() && verdict.executions + verdict.pruned < executions_max) {
      if (!explorer_.next()) return true;
    }
    return false;
  }

  void sample(std::uint64_t seed, std::uint64_t executions) {
    explorer_.randomize(seed);
    for (std::uint64_t i = 0; i < executions && run_once();) ++i;
  }

  void require_all_seen() {
    for (std::size_t i = 0; i < seen_.size() && verdict.ok; ++i) {
      if (!seen_[i]) fail("a legal outcome that no execution has: " + one_.outcomes[i]);
    }
  }

  std::string trace() const { return machine_.trace(); }
  std::uint64_t steps() const { return machine_.steps(); }

  Verdict verdict;

 private:
  bool run_once() {
    const auto outcome = machine_.execute(one_);
    ++(outcome || !machine_.failure().empty() ? verdict.executions : verdict.pruned);
    if (!machine_.failure().empty()) return fail(machine_.failure());
    if (!outcome) return true;
    const auto found = std::find(one_.outcomes.begin(), one_.outcomes.end(), *outcome);
    if (found == one_.outcomes.end()) return fail("an outcome that is not legal: " + *outcome);
    seen_[static_cast<std::size_t>(found - one_.outcomes.begin())] = true;
    return true;
  }

  bool fail(const std::string& what) {
    verdict.ok = false;
    verdict.failure = what;
    return false;
  }

  const Case& one_;
  Explorer explorer_;
  Machine machine_{explorer_};
  std::vector<bool> seen_;
};

}  // namespace

Verdict check(const Case& one, const Limits& limits) {
  Check it(one);
  const auto executions_max = static_cast<std::uint64_t>(static_cast<double>(one.executions_max) * limits.scale);
  it.verdict.complete = it.enumerate(executions_max);
  if (it.verdict.ok && !it.verdict.complete) it.sample(limits.seed, executions_max);  // too many: the rest is sampled
  it.verdict.steps = it.steps();
  if (!it.verdict.ok && limits.traces) it.verdict.failure += "\n" + it.trace();
  if (limits.must_see_all) it.require_all_seen();
  return it.verdict;
}

Verdict sample(const Case& one, std::uint64_t seed, std::uint64_t executions) {
  Check it(one);
  it.sample(seed, executions);
  return it.verdict;
}

void require(bool holds, std::string_view what) {
  const Inside machine;
  Machine* const its = machine ? machine.operator->() : ended_machine;
  if (!holds && its != nullptr) its->fail("does not hold: " + std::string(what));
}

void give_way() {
  const Inside machine;
  if (machine) machine->give_way();
}

void give_way_to_lock() {
  const Inside machine;
  if (machine) machine->give_way_to_lock();
}

int thread_number() {
  const Inside machine;
  return machine ? machine->current() : 0;
}

std::uint64_t now_ns() {
  const Inside machine;
  return machine ? machine->now_ns() : kEarly;
}

namespace {

void count(const void* address, bool reads, bool writes) {
  if (counted_traffic != nullptr && running_machine != nullptr) counted_traffic->note(address, reads, writes);
}

}  // namespace

std::uint64_t load(std::uint64_t* word, Order order, Where where) {
  count(word, true, false);
  const Inside machine;
  return machine ? machine->load(word, order, sites().at(where, Operation::load, order)) : *word;
}

void store(std::uint64_t* word, std::uint64_t value, Order order, Where where) {
  count(word, false, true);
  const Inside machine;
  if (machine) {
    machine->store(word, value, order, sites().at(where, Operation::store, order));
  } else {
    *word = value;
  }
}

std::uint64_t modify(std::uint64_t* word, const std::function<std::uint64_t(std::uint64_t)>& change, Order order,
                     Where where) {
  count(word, true, true);
  const Inside machine;
  if (machine) return machine->modify(word, change, order, sites().at(where, Operation::modify, order));
  const std::uint64_t before = *word;
  *word = change(before);
  return before;
}

bool compare_exchange(std::uint64_t* word, std::uint64_t& expected, std::uint64_t desired, bool weak, Order success,
                      Order failure, Where where) {
  count(word, true, true);
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
  count(address, !writes, writes);
  const Inside machine;
  machine->plain(address, bytes, writes);
}

}  // namespace gpusock::model
