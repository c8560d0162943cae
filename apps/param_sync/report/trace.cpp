#include "report/trace.hpp"

#include "param_sync/executor/program.hpp"
#include "report/report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace param_sync {
namespace {

const char* name_of(Activity activity) {
  switch (activity) {
    case Activity::forward_wait:
      return "forward wait";
    case Activity::forward:
      return "forward";
    case Activity::loss:
      return "loss";
    case Activity::backward:
      return "backward";
    case Activity::factor_wait:
      return "factor wait";
    case Activity::rebuild:
      return "rebuild";
    case Activity::push:
      return "push";
    case Activity::reduce:
      return "reduce";
    case Activity::reduce_push:
      return "reduce and push";
    case Activity::gather:
      return "gather";
    case Activity::gather_push:
      return "gather and push";
    case Activity::apply:
      return "apply";
    case Activity::publish:
      return "publish";
    case Activity::pull:
      return "pull";
    case Activity::pull_publish:
      return "pull and publish";
    case Activity::grant:
      return "grant";
    case Activity::grant_wait:
      break;
  }
  return "grant wait";
}

/// Returns what an op does. `of_weights`: true if it moves weights.
Activity activity_of(const executor::LaneOp& op, bool of_weights) {
  if (op.is_signal()) return op.kind == schedule::Kind::send ? Activity::grant : Activity::grant_wait;
  switch (op.kind) {
    case schedule::Kind::send:
      return of_weights ? Activity::publish : Activity::push;
    case schedule::Kind::recv:
      return of_weights ? Activity::pull : Activity::gather;
    case schedule::Kind::recv_reduce:
      return Activity::reduce;
    case schedule::Kind::recv_send:
      return of_weights ? Activity::pull_publish : Activity::gather_push;
    case schedule::Kind::recv_reduce_send:
      return Activity::reduce_push;
    case schedule::Kind::apply:
      break;
  }
  return Activity::apply;
}

std::string layers_text(const TraceSpan& span) {
  if (span.end_layer - span.first_layer == 1) return fmt::format("layer {}", span.first_layer);
  return fmt::format("layers {} to {}", span.first_layer, span.end_layer - 1);
}

std::string name_of(const TraceSpan& span) {
  if (span.activity == Activity::loss) return name_of(span.activity);
  return fmt::format("{} {}", name_of(span.activity), layers_text(span));
}

/// The thread of a span: the compute kernels come first, then the lanes, layer by layer.
std::pair<int, int> thread_of(const TraceSpan& span) {
  if (span.lane == TraceSpan::kCompute) return {-1, 0};
  return {span.first_layer, span.lane};
}

std::string thread_name(const TraceSpan& span, const std::vector<LayerScheme>& schemes) {
  if (span.lane == TraceSpan::kCompute) return "compute";
  const std::string& scheme = schemes.at(static_cast<std::size_t>(span.first_layer)).scheme;
  return fmt::format("{}, {}, lane {}", layers_text(span), scheme, span.lane);
}

nlohmann::json event_of(const TraceSpan& span, int rank, std::size_t thread, std::uint64_t start_ns) {
  nlohmann::json arguments{{"step", span.step + 1}};
  if (span.activity != Activity::loss) {
    arguments["first_layer"] = span.first_layer;
    arguments["last_layer"] = span.end_layer - 1;
  }
  if (span.from >= 0) arguments["from"] = span.from;
  if (span.to >= 0) arguments["to"] = span.to;
  return {{"ph", "X"},
          {"name", name_of(span)},
          {"cat", name_of(span.activity)},
          {"pid", rank},
          {"tid", thread},
          {"ts", static_cast<double>(span.begin_ns - start_ns) / 1e3},
          {"dur", static_cast<double>(span.end_ns - span.begin_ns) / 1e3},
          {"args", arguments}};
}

nlohmann::json label(const char* what, int rank, std::size_t thread, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

}  // namespace

std::vector<TraceSpan> spans_of_kernels(std::span<const std::uint64_t> marks, int layers,
                                        const std::vector<int>& of_factors, std::uint64_t step) {
  std::vector<TraceSpan> spans;
  const auto add = [&](Activity activity, int first_layer, int end_layer) {
    const std::size_t at = spans.size();
    spans.push_back({activity, first_layer, end_layer, TraceSpan::kCompute, step, marks[at], marks[at + 1]});
  };
  for (int layer = 0; layer < layers; ++layer) {
    add(Activity::forward_wait, layer, layer + 1);
    add(Activity::forward, layer, layer + 1);
  }
  add(Activity::loss, layers - 1, layers);
  for (int layer = layers - 1; layer >= 0; --layer) add(Activity::backward, layer, layer + 1);
  for (const int layer : of_factors) {
    add(Activity::factor_wait, layer, layer + 1);
    add(Activity::rebuild, layer, layer + 1);
  }
  return spans;
}

std::vector<TraceSpan> spans_of_lane(const ExchangePlan& plan, int rank, std::size_t bucket, int lane,
                                     const std::vector<executor::TracedOp>& ops, std::uint64_t first_step) {
  const executor::Program program = executor::program_of(plan.schedules[bucket], rank,
                                                         executor::channels_of(plan.schedules, rank), plan.execution);
  const executor::LaneOps own = program.lanes[static_cast<std::size_t>(lane)];
  const Bucket& layers = plan.buckets[bucket];
  std::vector<TraceSpan> spans;
  for (const executor::TracedOp& done : ops) {
    TraceSpan span{Activity::apply,        layers.first_layer, layers.end_layer, lane,
                   first_step + done.step, done.begin_ns,      done.end_ns};
    if (const int index = own.begin + static_cast<int>(done.op); index < own.end) {
      const auto& ops_of_lane = plan.schedules[bucket].ranks[static_cast<std::size_t>(rank)].lanes;
      const schedule::Op& op = ops_of_lane[static_cast<std::size_t>(lane)][done.op];
      const executor::LaneOp& executed = program.ops[static_cast<std::size_t>(index)];
      span.activity = activity_of(executed, executed.of_weights || layers.carries == Carries::weights);
      span.from = op.receives() ? op.from : -1;
      span.to = op.sends() ? op.to : -1;
    }
    spans.push_back(span);
  }
  return spans;
}

nlohmann::json to_json(const std::vector<TraceSpan>& spans) {
  nlohmann::json all = nlohmann::json::array();
  for (const TraceSpan& span : spans) {
    all.push_back({span.activity, span.first_layer, span.end_layer, span.lane, span.step, span.begin_ns, span.end_ns,
                   span.from, span.to});
  }
  return all;
}

std::vector<TraceSpan> trace_spans_from(const nlohmann::json& json) {
  std::vector<TraceSpan> all;
  for (const nlohmann::json& one : json) {
    all.push_back({one.at(0), one.at(1), one.at(2), one.at(3), one.at(4), one.at(5), one.at(6), one.at(7), one.at(8)});
  }
  return all;
}

std::string trace_text(const std::vector<NodeReport>& nodes, const std::vector<LayerScheme>& schemes) {
  std::uint64_t start_ns = std::numeric_limits<std::uint64_t>::max();
  for (const NodeReport& node : nodes) {
    for (const TraceSpan& span : node.trace) start_ns = std::min(start_ns, span.begin_ns);
  }
  // One line for each event, so that a large file can be searched.
  std::string text = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [";
  const char* separator = "\n";
  const auto add = [&](const nlohmann::json& event) { text += std::exchange(separator, ",\n") + event.dump(); };
  for (const NodeReport& node : nodes) {
    std::set<std::pair<int, int>> threads;
    for (const TraceSpan& span : node.trace) threads.insert(thread_of(span));
    add(label("process_name", node.rank, 0, fmt::format("rank {}", node.rank)));
    std::set<std::pair<int, int>> named;
    for (const TraceSpan& span : node.trace) {
      const auto own = threads.find(thread_of(span));
      const auto thread = static_cast<std::size_t>(std::distance(threads.begin(), own));
      if (named.insert(*own).second) {
        add(label("thread_name", node.rank, thread, thread_name(span, schemes)));
      }
      add(event_of(span, node.rank, thread, start_ns));
    }
  }
  return text + "\n]}\n";
}

}  // namespace param_sync
