#include "training/collect.cuh"

#include "param_sync/executor/handover.cuh"
#include "report/trace.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace param_sync {
namespace {

/// Returns the traffic of a bucket. Its lanes have counted messages only: they do not know what the messages carry.
LayerTraffic traffic_of(const executor::ExchangeWords& words, const Bucket& bucket,
                        const schedule::Schedule& schedule) {
  if (bucket.carries == Carries::weights) return {0, words.gathered_bytes, 0, words.pushed_bytes};
  LayerTraffic all{words.pushed_bytes, words.pulled_bytes, words.gathered_bytes, words.published_bytes,
                   words.in_place_bytes};
  // With these results the node itself uses what it receives, as it uses pulled weights.
  const bool gets_all = schedule.result == schedule::Result::all_reduce ||
                        schedule.result == schedule::Result::all_gather;
  if (gets_all) all.pulled_bytes = all.gathered_bytes;
  return all;
}

/// Waits until the rings are empty: links count bytes only when they take them out of the ring.
void await_sent(const gpusock::Context& context) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  const auto has_unsent = [](const gpusock::SocketInfo& socket) {
    return socket.link != gpusock::LinkKind::p2p && socket.tx_ring_fill != 0;
  };
  for (;;) {
    const auto sockets = context.sockets();
    if (std::none_of(sockets.begin(), sockets.end(), has_unsent) || std::chrono::steady_clock::now() > until) return;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace

void collect_traffic(const ExchangePlan& plan, const Layout& layout, std::span<const executor::ExchangeWords> words,
                     NodeReport& report) {
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    const Bucket& bucket = plan.buckets[i];
    const LayerTraffic all = traffic_of(words[i], bucket, plan.schedules[i]);
    LayerTraffic left = all;
    for (int layer = bucket.end_layer - 1; layer >= bucket.first_layer; --layer) {
      const double share = static_cast<double>(layout[layer].parameters()) / bucket.parameters;
      LayerTraffic& part = report.layers[static_cast<std::size_t>(layer)];
      for (const auto bytes : {&LayerTraffic::pushed_bytes, &LayerTraffic::pulled_bytes, &LayerTraffic::gathered_bytes,
                               &LayerTraffic::published_bytes, &LayerTraffic::in_place_bytes}) {
        const std::uint64_t own = layer == bucket.first_layer
                                      ? left.*bytes
                                      : static_cast<std::uint64_t>(share * static_cast<double>(all.*bytes));
        part.*bytes += own;
        left.*bytes -= own;
      }
    }
  }
}

void collect_trace(const ExchangePlan& plan, const executor::Executor& exchange, std::span<const std::uint64_t> marks,
                   int layers, const FactorLayers& factors, std::uint64_t traced_steps, NodeReport& report) {
  if (traced_steps == 0) return;
  const std::size_t each = marks_of_step(layers, layers);
  const auto add = [&](const std::vector<TraceSpan>& spans) {
    report.trace.insert(report.trace.end(), spans.begin(), spans.end());
  };
  for (std::uint64_t clock = 0; clock < std::min(traced_steps, report.steps); ++clock) {
    add(spans_of_kernels(marks.subspan(clock * each, each), layers, factors.made_here(), report.first_step + clock));
  }
  for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
    const auto lanes = exchange.trace(bucket);
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      add(spans_of_lane(plan, report.rank, bucket, static_cast<int>(lane), lanes[lane], report.first_step));
    }
  }
}

void collect_links(const gpusock::Context& context, NodeReport& report) {
  await_sent(context);
  const auto stats = context.stats();
  report.device_bytes = stats.device_bytes;
  report.proxy_steps = stats.proxy_steps;
  report.proxy_wakeups = stats.proxy_wakeups;
  report.tcp_tx_bytes = stats.of(gpusock::LinkKind::tcp).tx_bytes;
  report.p2p_tx_bytes = stats.of(gpusock::LinkKind::p2p).tx_bytes;
  report.verbs_tx_bytes = stats.of(gpusock::LinkKind::verbs).tx_bytes;
  report.fabric_tx_bytes = stats.of(gpusock::LinkKind::fabric).tx_bytes;
}

}  // namespace param_sync
