#pragma once
/// @file A node's pool of device memory (--device-pool), what its kernels share to use it, and what they count.

#include "plan/plan.hpp"
#include "report/report.hpp"
#include "training/pool_steps.cuh"

#include "gpusock/gpusock.hpp"

#include <cstdint>
#include <variant>
#include <vector>

namespace param_sync {

struct PoolMemory {
  gpusock::DeviceBuffer<float> floats;
  gpusock::DeviceBuffer<std::uint64_t> opened, ended;  ///< see pool_words.cuh
  gpusock::DeviceBuffer<StagedStay> stays;
  gpusock::DeviceBuffer<StayBefore> before;
  gpusock::Mapped<StepStaging> by_step;

  /// The plan has a pool.
  PoolMemory(gpusock::Context& context, const Plan& plan)
      : floats(context, plan.pool->floats),
        opened(context, 1),
        ended(context, plan.pool->stays.size()),
        stays(context, plan.pool->stays.size()),
        before(context, waits_of(*plan.pool).size()),
        by_step(context, plan.steps) {
    before.copy_in(waits_of(*plan.pool));
    std::vector<StagedStay> made;
    std::uint32_t first = 0;
    for (const PoolStay& stay : plan.pool->stays) {
      const auto end = first + static_cast<std::uint32_t>(stay.after.size());
      made.push_back({stay.layer, plan.layout[stay.layer].offset, stay.begin, stay.is_gradient ? 0 : stay.floats,
                      uses_of(stay, plan), first, end});
      first = end;
    }
    stays.copy_in(made);
  }

  /// What the stager takes. `weights`: the model's, in mapped memory.
  Staging staging(const Plan& plan, const float* weights) const {
    return {floats.data(), weights,      stays.data(),   before.data(),
            opened.data(), ended.data(), by_step.data(), static_cast<std::uint32_t>(stays.size()),
            plan.steps};
  }

  /// What a kernel of a step takes.
  PoolUse use(const PoolPlan& plan, int kernel, std::uint64_t step) const {
    const std::size_t number = plan.stay_of(kernel);
    const PoolStay& stay = plan.stays[number];
    // Blocks that push end the use of gradients.
    const bool ends = !stay.is_gradient && stay.last == kernel;
    return {floats.data() + stay.begin, opened.data(), step * plan.stays.size() + number + 1,
            ends ? ended.data() + number : nullptr, by_step.data() + step};
  }

  /// Says where a part's gradients are.
  void place(const Plan& plan, StorePart& part) const {
    const std::size_t number = plan.pool->stay_of(plan.pool->gradients_kernel(part.layer));
    part.gradients = plan.pool->stays[number].begin + (part.begin - plan.layout[part.layer].offset);
    part.pool_use = ended.data() + number;
  }

  /// Adds what was counted to the report, after all kernels have ended.
  void collect(NodeReport& report) const {
    for (const StepStaging& step : by_step) {
      report.staged_bytes += step.bytes;
      report.step_copying_ns.push_back(step.copying_ns);
      report.step_stalled_ns.push_back(step.stalled_ns);
    }
  }

 private:
  static std::vector<StayBefore> waits_of(const PoolPlan& plan) {
    std::vector<StayBefore> all;
    for (const PoolStay& stay : plan.stays) {
      for (const PoolStay::Before& one : stay.after) {
        all.push_back({static_cast<std::uint32_t>(one.stay), one.in_step_before ? 1u : 0u});
      }
    }
    return all;
  }

  /// How many blocks end their use of a stay in each step: those of the last kernel that reads weights, or those that
  /// push gradients.
  static std::uint64_t uses_of(const PoolStay& stay, const Plan& plan) {
    if (stay.is_gradient) return static_cast<std::uint64_t>(plan.layout.nodes);
    const bool ends_forward = stay.last == plan.pool->outputs_kernel(stay.layer);
    return std::visit(
        [&](const auto& kind) {
          return ends_forward ? kind.forward_blocks(plan.batch) : kind.backward_blocks(plan.batch);
        },
        plan.layout[stay.layer].kind);
  }
};

}  // namespace param_sync
