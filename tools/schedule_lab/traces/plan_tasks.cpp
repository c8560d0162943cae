#include "traces/plan_tasks.hpp"

#include "traces/plan_run.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace param_sync::traces {
namespace {

/// Throws Error if a step cannot be messages from one rank to one other.
void require_no_switch(const foreign::Plan& plan) {
  for (const foreign::Block& block : plan.blocks) {
    for (const foreign::Step& step : block.steps) {
      if (!step.uses_switch) continue;
      throw schedule::Error(
          fmt::format("{} goes through a switch, which reads or writes the memory of several ranks "
                      "at once: a trace has only messages from one rank to another",
                      location(plan, block, step)));
    }
  }
}

}  // namespace

std::vector<Tasks> tasks_of(const foreign::Plan& plan, const Load& load) {
  require_no_switch(plan);
  const std::uint64_t size = load.floats * sizeof(float);
  const int iterations = iterations_for(plan, load);
  if (iterations != 0 && iterations != plan.slices)
    throw schedule::Error("the plan was read with another number of iterations");
  const auto cells = static_cast<std::uint64_t>(plan.data_chunks) * static_cast<std::uint64_t>(plan.slices);
  const std::uint64_t unit = cells * sizeof(float);
  if (size == 0 || size % unit != 0) {
    throw WrongSize(fmt::format(
        "{} bytes cannot be cut into {} {} of whole floats: give a multiple of {} bytes, such as {}", size, cells,
        plan.slices == 1 ? "chunks" : "slices of chunks", unit, std::max(size / unit, std::uint64_t{1}) * unit));
  }
  return PlanRun(plan, size / cells, load).run();
}

int iterations_for(const foreign::Plan& plan, const Load& load) {
  if (plan.iteration_bytes == 0) return 0;
  const std::uint64_t unit = plan.iteration_bytes, chunks = static_cast<std::uint64_t>(plan.data_chunks);
  const std::uint64_t chunk = load.floats * sizeof(float) / chunks;
  if (chunk <= unit) return 1;
  if (unit % sizeof(float) != 0) {
    throw schedule::Error(
        fmt::format("its pipelines move {} bytes at a time, and a trace has whole floats: only {} bytes or less, which "
                    "they move at once, can be a trace",
                    unit, unit * chunks));
  }
  if (chunk % unit != 0 || chunk * chunks != load.floats * sizeof(float)) {
    throw WrongSize(fmt::format(
        "a pipeline moves {} bytes at a time of each of the data's {} chunks: give at most {} bytes, or a multiple of "
        "that",
        unit, chunks, unit * chunks));
  }
  if (chunk / unit > foreign::kSlicesMax) {
    throw WrongSize(fmt::format(
        "its pipelines move {} bytes at a time, and would have more than {} iterations for each chunk: give "
        "{} bytes at most",
        unit, foreign::kSlicesMax, unit * chunks * foreign::kSlicesMax));
  }
  return static_cast<int>(chunk / unit);
}

}  // namespace param_sync::traces
