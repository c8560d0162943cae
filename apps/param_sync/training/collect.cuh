#pragma once
/// @file Collects what a node's kernels have counted in a training, for its report. For the host, after all have ended.

#include "param_sync/executor/executor.hpp"
#include "plan/exchange_plan.hpp"
#include "report/report.hpp"
#include "training/factor_layers.cuh"

#include "gpusock/gpusock.hpp"

#include <cstdint>
#include <span>

namespace param_sync {

/// Adds the bytes of each layer to the report. `words` is by bucket. A bucket's bytes are divided among its layers by
/// their size; the first layer gets the remainder.
void collect_traffic(const ExchangePlan& plan, const Layout& layout, std::span<const executor::ExchangeWords> words,
                     NodeReport& report);

/// Adds what the kernels and the lanes of `exchange` did in the first `traced_steps` of this run. `marks` holds the
/// times of these steps, marks_of_step() for each. The rank and the steps are those of the report.
void collect_trace(const ExchangePlan& plan, const executor::Executor& exchange, std::span<const std::uint64_t> marks,
                   int layers, const FactorLayers& factors, std::uint64_t traced_steps, NodeReport& report);

/// Adds what the links and the proxy of this node's context have counted, and its device memory. First waits until they
/// have sent everything, at most 5 s.
void collect_links(const gpusock::Context& context, NodeReport& report);

}  // namespace param_sync
