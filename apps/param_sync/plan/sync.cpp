#include "plan/sync.hpp"

#include "gpusock/error.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

namespace param_sync {
namespace {

/// Reads "NAME:N" or "NAME:N,N,...", whose numbers are from `least` on. Returns nothing if the text is something else.
std::optional<std::vector<std::uint64_t>> numbers_after(std::string_view name, std::string_view text,
                                                        std::uint64_t least = 1) {
  if (!text.starts_with(name)) return std::nullopt;
  std::vector<std::uint64_t> numbers;
  const char* at = text.data() + name.size();
  const char* const end = text.data() + text.size();
  for (;;) {
    const auto read = std::from_chars(at, end, numbers.emplace_back());
    if (read.ec != std::errc() || numbers.back() < least) return std::nullopt;
    if (read.ptr == end) return numbers;
    if (*read.ptr != ',') return std::nullopt;
    at = read.ptr + 1;
  }
}

}  // namespace

std::uint64_t SyncPlan::offset_of(int layer) const {
  if (!by_layer) return 0;
  // local_steps * layer / layers. That product may be too large for 64 bits, so it is taken apart.
  const auto number = static_cast<std::uint64_t>(layer), all = static_cast<std::uint64_t>(layers);
  return local_steps / all * number + local_steps % all * number / all;
}

std::uint64_t SyncPlan::exchanges_before(std::uint64_t step, const RankLayer& of) const {
  if (local_steps == 0) return step;
  const std::uint64_t offset = offset_of(of.layer);
  const auto regular = [&](std::uint64_t before) {
    return before / local_steps + (before % local_steps >= local_steps - offset ? 1 : 0);
  };
  // What would come after the last step is not pushed: the exchange that follows the last step takes its place.
  const std::uint64_t before_last = steps - 1 < overlap ? 0 : regular(steps - 1 - overlap);
  if (step == steps) return before_last + 1;
  const std::uint64_t round = step / local_steps;
  if (slots.count == 0 || round == (steps - 1) / local_steps) return std::min(regular(step), before_last);
  return round + (slots.step_of(of.rank, round) < step % local_steps ? 1 : 0);
}

SyncPlan SyncPlan::of_run(int nodes, int layers_of_model, std::uint64_t seed, std::uint64_t steps_of_run) const {
  SyncPlan plan = *this;
  plan.layers = layers_of_model;
  plan.steps = steps_of_run;
  if (tree_depth != 0) {
    plan.tree = store::Tree::of_depth(nodes, tree_depth);
    plan.tree_depth = static_cast<std::uint64_t>(plan.tree.lag_max());
  }
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
  if (const auto steps = numbers_after("streaming:", text, 0);
      steps && steps->size() == 2 && steps->back() < steps->front()) {
    plan.local_steps = steps->front();
    plan.by_layer = true;
    plan.overlap = steps->back();
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
  if (const auto levels = numbers_after("tree:", text);
      levels && levels->size() == 1 && levels->front() <= SyncPlan::kDepthMax) {
    plan.tree_depth = levels->front();
    plan.depth = 1;
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
          "' is none of bsp, ssp:S (weights miss at most S pushes of each node), async, backup:B (a step ends with the "
          "gradients of all nodes but B; backup:B,MS: and with those that come in so many ms after them), coded:K "
          "(nodes of a group of K + 1 compute the same, and a step ends with one of each group), downpour:PUSH,PULL (a "
          "node pushes its change after PUSH steps, and pulls weights after PULL steps, a multiple of PUSH), slots:M "
          "(after a step M nodes push their changes and pull weights, by turns), pipeline:D (weights are D steps old, "
          "from 1 to " +
          std::to_string(SyncPlan::kDepthMax) +
          "), tree:D (likewise, as nodes pass them on by trees of at most D levels), every:X (nodes average their "
          "weights after X steps), and streaming:X,T (each layer after X steps of its own, and nodes take the average "
          "T steps later, less than X)");
}

}  // namespace param_sync
