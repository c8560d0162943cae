#pragma once
/// @file What a node's kernels have counted in a training, for its report. The host's, when all kernels have ended.

#include "param_sync/executor/executor.hpp"
#include "plan/exchange_plan.hpp"
#include "report/report.hpp"
#include "training/factor_layers.cuh"

#include "gpusock/gpusock.hpp"

#include <cstdint>
#include <span>

namespace param_sync {

/// Adds the bytes of each layer. `words`: by bucket. A bucket's bytes are shared out to its layers by their size; the
/// first one has what does not divide.
void collect_traffic(const ExchangePlan& plan, const Layout& layout, std::span<const executor::ExchangeWords> words,
                     NodeReport& report);

/// Adds what the kernels and the lanes of `exchange` did in the first `traced_steps` of this run. `marks`: of these
/// steps, one after the other (marks_of_step()). Rank and steps are those of the report.
void collect_trace(const ExchangePlan& plan, const executor::Executor& exchange, std::span<const std::uint64_t> marks,
                   int layers, const FactorLayers& factors, std::uint64_t traced_steps, NodeReport& report);

/// Adds what the links and the proxy of this node's context have counted. Waits until they have sent all, for 5 s at
/// most.
void collect_links(const gpusock::Context& context, NodeReport& report);

}  // namespace param_sync
