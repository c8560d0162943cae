// Plans of other programs: any text is refused with an Error, or what it describes is proved, refuted or not
// understood, and each time alike. What is proved becomes tasks, or is refused with an Error.
#include "foreign/prove.hpp"
#include "foreign/read.hpp"
#include "traces/plan_tasks.hpp"
#include "tests/fuzz/target.hpp"

#include <map>
#include <tuple>
#include <utility>

namespace gpusock::fuzz::of_foreign {

using param_sync::foreign::Block;
using param_sync::foreign::Error;
using param_sync::foreign::Plan;
using param_sync::foreign::Proof;
using param_sync::foreign::Step;
using param_sync::traces::Dependency;
using param_sync::traces::Kind;
using param_sync::traces::Task;
using param_sync::traces::Tasks;

/// Accesses of all steps: a plan with many takes seconds.
std::size_t accesses(const Plan& plan) {
  std::size_t sum = 0;
  for (const Block& block : plan.blocks) {
    for (const Step& step : block.steps)
      sum += 1 + static_cast<std::size_t>(step.count) * (1 + step.from.size() + step.to.size());
  }
  return sum;
}

/// Each message has two ends, and each task waits for others of its rank.
void check_tasks(const Plan& plan) {
  const auto cells = static_cast<std::uint64_t>(plan.data_chunks) * static_cast<std::uint64_t>(plan.slices);
  std::map<std::tuple<int, int, std::uint64_t>, std::pair<int, int>> messages;  // by sender, receiver and tag
  int rank = 0;
  for (const Tasks& tasks : param_sync::traces::tasks_of(plan, {cells, 1e9})) {
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      const Task& task = tasks[i];
      for (const Dependency& before : task.after)
        FUZZ_CHECK(static_cast<std::size_t>(before.task) < tasks.size() && static_cast<std::size_t>(before.task) != i);
      if (task.kind == Kind::send) ++messages[{rank, task.peer, task.tag}].first;
      if (task.kind == Kind::recv) ++messages[{task.peer, rank, task.tag}].second;
    }
    ++rank;
  }
  for (const auto& [message, ends] : messages) FUZZ_CHECK(ends == std::pair(1, 1));
}

FUZZ_TARGET(foreign) {
  try {
    const Plan plan = param_sync::foreign::read_plan(input.rest());
    if (accesses(plan) > 20'000 || plan.ranks * plan.data_chunks > 20'000) return;
    const Proof proof = param_sync::foreign::prove(plan);
    FUZZ_CHECK(proof.is_proved == proof.why.empty());
    FUZZ_CHECK(proof.is_proved || proof.in_a_row.empty());
    const Proof again = param_sync::foreign::prove(plan);
    FUZZ_CHECK(again.why == proof.why && again.steps == proof.steps && again.bytes_max == proof.bytes_max);
    if (proof.is_proved) check_tasks(plan);
  } catch (const Error&) {
  }
}

}  // namespace gpusock::fuzz::of_foreign
