#pragma once
/// @file What nodes did in the first steps of a training, and when, as a trace that Perfetto and Chrome open.

#include "param_sync/executor/traced_op.hpp"
#include "plan/exchange_plan.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace param_sync {

enum class Activity : std::uint8_t {
  // What kernels that compute do.
  forward_wait,  ///< waits for the layer's weights
  forward,
  loss,
  backward,
  factor_wait,  ///< waits for all nodes' factors of the layer
  rebuild,      ///< sums all nodes' gradients, made from their factors, and makes the weights
  // What lanes do.
  push,          ///< sends gradients, sums of them, or factors
  reduce,        ///< waits for gradients, and adds them
  reduce_push,   ///< the same, and sends the sums on
  gather,        ///< waits for sums or factors, and takes them
  gather_push,   ///< the same, and sends them on
  apply,         ///< the optimizer makes weights of sums
  publish,       ///< sends weights
  pull,          ///< waits for weights, and takes them
  pull_publish,  ///< the same, and sends them on
  grant,         ///< waits for a credit, and lets another node push
  grant_wait     ///< waits until it may push
};

/// What a node did, and when. Times are of the device's clock; on the CPU device all processes of a host share it.
struct TraceSpan {
  static constexpr int kCompute = -1;

  Activity activity = Activity::forward;
  int first_layer = 0;
  int end_layer = 0;
  int lane = kCompute;  ///< lane of the layers' exchange, or kCompute
  std::uint64_t step = 0;
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
  int from = -1;  ///< the rank whose message it takes
  int to = -1;    ///< the rank that it sends to
};

/// Number of timestamps that a step records between its compute kernels. `of_factors`: the number of layers whose
/// gradients this node makes from factors.
constexpr std::size_t marks_of_step(int layers, int of_factors) {
  return 3 * static_cast<std::size_t>(layers) + 2 * static_cast<std::size_t>(of_factors) + 2;
}

/// Returns one step's spans. `marks`: its timestamps. `of_factors`: layers that this node makes from factors, in order.
std::vector<TraceSpan> spans_of_kernels(std::span<const std::uint64_t> marks, int layers,
                                        const std::vector<int>& of_factors, std::uint64_t step);

/// Returns what a lane of a bucket has done. The steps of `ops` count from `first_step`.
std::vector<TraceSpan> spans_of_lane(const ExchangePlan& plan, int rank, std::size_t bucket, int lane,
                                     const std::vector<executor::TracedOp>& ops, std::uint64_t first_step);

nlohmann::json to_json(const std::vector<TraceSpan>& spans);
std::vector<TraceSpan> trace_spans_from(const nlohmann::json& json);

struct NodeReport;

/// Returns the trace in the format of Chrome's trace viewer: a process for each node, whose threads are the compute
/// kernels and the lanes. The names of lanes include the scheme. `schemes`: by layer.
std::string trace_text(const std::vector<NodeReport>& nodes, const std::vector<LayerScheme>& schemes);

}  // namespace param_sync
