#include "plan/sync.hpp"

#include "gpusock/error.hpp"

#include <cerrno>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

namespace param_sync {
namespace {

/// Reads "NAME:N" or "NAME:N,N,...", whose numbers are from 1 on. Returns nothing if the text is something else.
std::optional<std::vector<std::uint64_t>> numbers_after(std::string_view name, std::string_view text) {
  if (!text.starts_with(name)) return std::nullopt;
  std::vector<std::uint64_t> numbers;
  const char* at = text.data() + name.size();
  const char* const end = text.data() + text.size();
  for (;;) {
    const auto read = std::from_chars(at, end, numbers.emplace_back());
    if (read.ec != std::errc() || numbers.back() == 0) return std::nullopt;
    if (read.ptr == end) return numbers;
    if (*read.ptr != ',') return std::nullopt;
    at = read.ptr + 1;
  }
}

}  // namespace

SyncPlan SyncPlan::of_run(int nodes, std::uint64_t seed, std::uint64_t steps_of_run) const {
  SyncPlan plan = *this;
  plan.steps = steps_of_run;
  if (slots.count == 0) return plan;
  if (slots.count > static_cast<std::uint64_t>(nodes)) {
    throw gpusock::Error(EINVAL, "--sync slots:" + std::to_string(slots.count) +
                                     " gives more slots than there are nodes, " + std::to_string(nodes));
  }
  plan.slots.nodes = nodes;
  plan.slots.seed = seed;
  plan.local_steps = plan.slots.round_steps();
  return plan;
}

SyncPlan sync_of(std::string_view text) {
  if (text.empty()) return {};
  SyncPlan plan;
  if (const auto every = numbers_after("every:", text); every && every->size() == 1) {
    plan.local_steps = every->front();
    return plan;
  }
  if (const auto steps = numbers_after("downpour:", text);
      steps && steps->size() == 2 && steps->back() % steps->front() == 0) {
    plan.clock = Async();
    plan.local_steps = steps->front();
    plan.pull_every = steps->back() / steps->front();
    return plan;
  }
  if (const auto slots = numbers_after("slots:", text); slots && slots->size() == 1) {
    plan.clock = Async();
    plan.slots.count = slots->front();
    plan.local_steps = 1;  // until the number of nodes is known
    return plan;
  }
  if (const auto depth = numbers_after("pipeline:", text);
      depth && depth->size() == 1 && depth->front() <= SyncPlan::kDepthMax) {
    plan.depth = depth->front();
    return plan;
  }
  try {
    plan.clock = clock_of(text);
    return plan;
  } catch (const gpusock::Error&) {
    // What is allowed here is more than clocks.
  }
  throw gpusock::Error::with_cause(
      EINVAL,
      "'" + std::string(text) +
          "' is none of bsp, ssp:S (weights miss at most S pushes of each node), async, "
          "downpour:PUSH,PULL (a node pushes its change after PUSH steps, and pulls weights after PULL steps, a "
          "multiple of PUSH), slots:M (after a step M nodes push their changes and pull weights, by turns), pipeline:D "
          "(weights are D steps old, from 1 to " +
          std::to_string(SyncPlan::kDepthMax) + "), and every:X (nodes average their weights after X steps)");
}

}  // namespace param_sync
