#include "exchange_plan.hpp"

#include "executor/failure.hpp"
#include "executor/program.hpp"
#include "schedule/schemes.hpp"

#include "gpusock/gpusock.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

namespace param_sync {
namespace {

constexpr std::uint32_t kChunkFloatsMin = 256;  // smaller chunks cost more in headers and calls than they hide
constexpr std::uint64_t kUnitBytesMax = 256 << 10;
constexpr std::uint64_t kRingBytesMin = 16 << 10, kRingBytesMax = 512 << 10;

/// From the last layer on, since its gradients are there first.
std::vector<Bucket> make_buckets(const Layout& layout, std::uint32_t fuse_bytes) {
  std::vector<Bucket> buckets;
  for (int layer = layout.layers - 1; layer >= 0; --layer) {
    const LayerShape& shape = layout.layer[layer];
    if (!buckets.empty()) {
      Bucket& behind = buckets.back();
      if ((std::uint64_t{behind.parameters} + shape.parameters()) * sizeof(float) <= fuse_bytes) {
        behind = {layer, behind.end_layer, shape.offset, behind.parameters + shape.parameters()};
        continue;
      }
    }
    buckets.push_back({layer, layer + 1, shape.offset, shape.parameters()});
  }
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

schedule::Schedule make_schedule(const Config& config, std::uint32_t parameters) {
  const std::string& scheme = config.scheme;
  const int nodes = config.nodes;
  schedule::Request request;
  request.nodes = nodes;
  request.slots = config.slots;
  const auto most = static_cast<int>(std::max<std::uint32_t>(parameters / kChunkFloatsMin, 1));
  // A part for each rank, however small: some schemes need it to keep all ranks busy.
  request.chunks = std::min(schedule::default_chunks(scheme, request), std::max(most, nodes));
  return schedule::generate(scheme, request);
}

/// Renumbers the schedule's channels to follow those of other schedules; returns the first one that is free.
int shift_channels(schedule::Schedule& schedule, int first) {
  int end = first;
  for (schedule::Rank& rank : schedule.ranks) {
    for (schedule::Lane& lane : rank.lanes) {
      for (schedule::Op& op : lane) {
        if (!op.receives() && !op.sends()) continue;
        op.channel += first;
        end = std::max(end, op.channel + 1);
      }
    }
  }
  return end;
}

std::uint64_t chunk_bytes_max(const schedule::Schedule& schedule, std::uint32_t parameters) {
  const auto chunks = static_cast<std::uint32_t>(schedule.chunks);
  return std::uint64_t{(parameters + chunks - 1) / chunks} * sizeof(float);
}

/// The most that a rank sends to another on one channel in a pass, headers included.
std::uint64_t edge_bytes_max(const schedule::Schedule& schedule, std::uint32_t parameters, std::uint64_t unit_bytes) {
  const executor::Cut cut{parameters, unit_bytes / sizeof(float), static_cast<std::uint32_t>(schedule.chunks)};
  std::uint64_t most = 0;
  for (const schedule::Rank& rank : schedule.ranks) {
    std::map<std::pair<int, int>, std::uint64_t> sent;  // by rank and channel
    for (const schedule::Lane& lane : rank.lanes) {
      for (const schedule::Op& op : lane) {
        if (!op.sends()) continue;
        std::uint64_t& bytes = sent[{op.to, op.channel}];
        bytes += sizeof(executor::MessageHeader);
        for (int chunk = op.chunk; chunk < op.chunk + op.count; ++chunk) {
          bytes += cut.part(static_cast<std::uint32_t>(chunk), 0).count() * sizeof(float);
        }
        most = std::max(most, bytes);
      }
    }
  }
  return most;
}

}  // namespace

int ExchangePlan::bucket_of(int layer) const {
  int bucket = 0;
  while (layer >= buckets[static_cast<std::size_t>(bucket)].end_layer) ++bucket;
  return bucket;
}

executor::Sent ExchangePlan::sent(int rank, bool of_weights) const {
  executor::Sent all;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const executor::Program program = executor::program_of(schedules[i], rank, executor::channels_of(schedules, rank),
                                                           execution);
    const executor::Cut cut{buckets[i].parameters, unit_bytes / sizeof(float),
                            static_cast<std::uint32_t>(program.chunks)};
    all += executor::sent_in_step(program, cut, of_weights);
  }
  return all;
}

std::uint64_t ExchangePlan::dense_bytes(int rank) const {
  const executor::Sent pushed = sent(rank, false);
  return pushed.messages * sizeof(executor::MessageHeader) + pushed.floats * sizeof(float);
}

std::uint64_t ExchangePlan::pushed_bytes(int rank) const {
  const executor::Sent pushed = sent(rank, false);
  double words = static_cast<double>(pushed.floats);
  if (budget_bytes != 0) words *= 2 * changes_per_float(rank);
  return pushed.messages * sizeof(executor::MessageHeader) + static_cast<std::uint64_t>(words) * sizeof(float);
}

double ExchangePlan::changes_per_float(int rank) const {
  executor::Sent all = sent(rank, false);
  all += sent(rank, true);
  return executor::changes_per_float(all, budget_bytes, rank);
}

ExchangePlan make_exchange_plan(const Config& config, const Layout& layout) {
  ExchangePlan plan;
  plan.buckets = make_buckets(layout, config.fuse_bytes);
  int channels = 0;
  for (const Bucket& bucket : plan.buckets) {
    try {
      plan.schedules.push_back(make_schedule(config, bucket.parameters));
    } catch (const schedule::Error& error) {
      throw gpusock::Error(EINVAL, "--scheme: " + std::string(error.what()));
    }
    channels = shift_channels(plan.schedules.back(), channels);
    plan.unit_bytes = std::max(plan.unit_bytes, chunk_bytes_max(plan.schedules.back(), bucket.parameters));
  }
  plan.unit_bytes = std::min(plan.unit_bytes, kUnitBytesMax);
  // A chunk has to fit. Where all of a pass does, no lane waits for room.
  plan.ring_bytes = std::max(std::bit_ceil(plan.unit_bytes + sizeof(executor::MessageHeader)), kRingBytesMin);
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    const std::uint64_t bytes = edge_bytes_max(plan.schedules[i], plan.buckets[i].parameters, plan.unit_bytes);
    plan.ring_bytes = std::max(plan.ring_bytes, std::min(std::bit_ceil(bytes), kRingBytesMax));
  }
  plan.budget_bytes = config.budget_bytes;
  // What comes too early waits for the sums before it as a whole: changes are added at once.
  plan.execution = {.rank_order = config.budget_bytes == 0, .weights_apart = true};
  for (int rank = 0; rank < config.nodes && config.budget_bytes != 0; ++rank) plan.changes_per_float(rank);
  return plan;
}

bool has_budget(const std::string& scheme) { return schedule::has_slots(scheme); }  // parameter servers

std::vector<std::string> training_schemes() {
  std::vector<std::string> names{kDirectScheme};
  for (const std::string& scheme : schedule::scheme_names()) {
    if (scheme != "blink") names.push_back(scheme);  // which needs a topology
  }
  return names;
}

}  // namespace param_sync
