#pragma once
/// @file What nodes did in the first steps of a training, and when: as a trace that Perfetto and Chrome open.

#include "param_sync/executor/traced_op.hpp"
#include "plan/exchange_plan.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace param_sync {

enum class Activity : std::uint8_t {
  // of the kernels that compute
  forward_wait,  ///< for the layer's weights
  forward,
  loss,
  backward,
  factor_wait,  ///< for all nodes' factors of the layer
  rebuild,      ///< makes the sum of all nodes' gradients of their factors, and of it the weights
  // of lanes
  push,          ///< sends gradients, sums of them, or factors
  reduce,        ///< waits for gradients, and adds them
  reduce_push,   ///< the same, and sends the sums on
  gather,        ///< waits for sums or factors, and takes them
  gather_push,   ///< the same, and sends them on
  apply,         ///< the optimizer makes weights of sums
  publish,       ///< sends weights
  pull,          ///< waits for weights, and takes them
  pull_publish,  ///< the same, and sends them on
  grant,         ///< waits for a slot, and lets another node push
  grant_wait     ///< waits until it may push
};

/// Times by the device's clock, which all processes of a host share on a CPU device.
struct TraceSpan {
  static constexpr int kCompute = -1;

  Activity activity = Activity::forward;
  int first_layer = 0;
  int end_layer = 0;
  int lane = kCompute;  ///< of the layers' exchange
  std::uint64_t step = 0;
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
  int from = -1;  ///< the rank whose message it takes
  int to = -1;    ///< the rank that it sends to
};

/// How many times a step records between its compute kernels. `of_factors`: layers whose gradients this node makes from
/// factors.
constexpr std::size_t marks_of_step(int layers, int of_factors) {
  return 3 * static_cast<std::size_t>(layers) + 2 * static_cast<std::size_t>(of_factors) + 2;
}

/// `marks`: of one step. `of_factors`: the layers that are made of factors here, in the order in which they are.
std::vector<TraceSpan> spans_of_kernels(std::span<const std::uint64_t> marks, int layers,
                                        const std::vector<int>& of_factors, std::uint64_t step);

/// What a lane of a bucket has done. The steps of `ops` count from `first_step`.
std::vector<TraceSpan> spans_of_lane(const ExchangePlan& plan, int rank, std::size_t bucket, int lane,
                                     const std::vector<executor::TracedOp>& ops, std::uint64_t first_step);

nlohmann::json to_json(const std::vector<TraceSpan>& spans);
std::vector<TraceSpan> trace_spans_from(const nlohmann::json& json);

struct NodeReport;

/// In the format of Chrome's trace viewer: a process for each node; its threads are the compute kernels and the lanes,
/// whose names say the scheme. `schemes`: by layer.
std::string trace_text(const std::vector<NodeReport>& nodes, const std::vector<LayerScheme>& schemes);

}  // namespace param_sync
