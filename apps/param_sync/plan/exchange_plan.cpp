#include "plan/exchange_plan.hpp"

#include "param_sync/codec/top_k.hpp"
#include "param_sync/executor/failure.hpp"
#include "param_sync/executor/program.hpp"
#include "param_sync/schedule/schemes.hpp"

#include "gpusock/gpusock.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <utility>

namespace param_sync {
namespace {

constexpr std::uint64_t kRingBytesMin = 16 << 10, kRingBytesMax = 512 << 10;

/// Joins neighbouring layers to buckets, from the last layer on, since its gradients are ready first.
std::vector<Bucket> fuse_layers(const Layout& layout, const std::vector<LayerScheme>& schemes,
                                std::uint64_t fuse_bytes) {
  std::vector<Bucket> buckets;
  for (int layer = layout.size() - 1; layer >= 0; --layer) {
    const Layer& own = layout[layer];
    const std::string& scheme = schemes[static_cast<std::size_t>(layer)].scheme;
    if (!buckets.empty() && !is_of_factors(scheme) && schemes[static_cast<std::size_t>(layer) + 1].scheme == scheme) {
      Bucket& behind = buckets.back();
      if ((std::uint64_t{behind.parameters} + own.parameters()) * sizeof(float) <= fuse_bytes) {
        behind = {layer, behind.end_layer, own.offset, behind.parameters + own.parameters()};
        continue;
      }
    }
    buckets.push_back({layer, layer + 1, own.offset, own.parameters()});
  }
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

/// The most bytes that a rank sends to another one on one channel in a pass, headers included.
std::uint64_t edge_bytes_max(const schedule::Schedule& schedule, const executor::Cut& cut) {
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
  int bucket = 2 * static_cast<int>(sharing.size());
  while (layer >= buckets[static_cast<std::size_t>(bucket)].end_layer) ++bucket;
  return has_two_exchanges(layer) ? bucket + 1 : bucket;
}

int ExchangePlan::factors_of(int layer) const {
  return has_two_exchanges(layer) ? bucket_of(layer) - 1 : bucket_of(layer);
}

bool ExchangePlan::has_two_exchanges(int layer) const {
  return schedule::moves(schemes[static_cast<std::size_t>(layer)].scheme, schedule::Moves::factors_to_owner);
}

int ExchangePlan::place_in_sharing(int layer) const {
  return static_cast<int>(std::find(sharing.begin(), sharing.end(), layer) - sharing.begin());
}

executor::Cut ExchangePlan::cut_of(std::size_t bucket) const {
  return {buckets[bucket].floats, unit_bytes / sizeof(float), static_cast<std::uint32_t>(schedules[bucket].chunks)};
}

executor::Sent ExchangePlan::sent(int rank, bool of_weights) const {
  executor::Sent all;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const bool only_weights = buckets[i].carries == Carries::weights;
    if (only_weights && !of_weights) continue;
    const executor::Program program = executor::program_of(schedules[i], rank, executor::channels_of(schedules, rank),
                                                           execution);
    all += executor::sent_in_step(program, cut_of(i), of_weights && !only_weights);
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
  return codec::changes_per_float({all.messages, all.floats, sizeof(executor::MessageHeader), 0, rank}, budget_bytes);
}

namespace {

void add_exchange(ExchangePlan& plan, const Bucket& of, LayerExchange made, int& channels) {
  plan.unit_bytes = std::max(plan.unit_bytes, std::min(chunk_bytes_max(made), kUnitBytesMax));
  plan.buckets.push_back(of);
  plan.buckets.back().carries = made.carries;
  plan.buckets.back().floats = made.floats;
  plan.schedules.push_back(std::move(made.schedule));
  channels = schedule::shift_channels(plan.schedules.back(), channels);
}

/// Makes the schedules of the numbers that nodes share: forward from the first layer on, then backward.
void add_number_exchanges(ExchangePlan& plan, const Layout& layout, int& channels) {
  const auto add = [&](int layer) {
    const Layer& own = layout[layer];
    add_exchange(plan, {layer, layer + 1, own.offset, own.parameters()},
                 make_number_exchange(layout.nodes, own.shared_floats()), channels);
  };
  for (int layer = 0; layer < layout.size(); ++layer) {
    if (layout[layer].shared_floats() != 0) plan.sharing.push_back(layer);
  }
  std::for_each(plan.sharing.begin(), plan.sharing.end(), add);
  std::for_each(plan.sharing.rbegin(), plan.sharing.rend(), add);
}

/// Makes the schedules of layers that are exchanged together.
void add_exchanges(ExchangePlan& plan, const Bucket& fused, const ExchangeShape& shape, int& channels) {
  for (LayerExchange& made :
       make_layer_exchanges(plan.schemes[static_cast<std::size_t>(fused.first_layer)].scheme, shape)) {
    add_exchange(plan, fused, std::move(made), channels);
  }
}

}  // namespace

ExchangePlan make_exchange_plan(const Config& config, const Layout& layout) {
  ExchangePlan plan;
  plan.schemes = choose_schemes(config, layout);
  int channels = 0;
  add_number_exchanges(plan, layout, channels);
  for (const Bucket& fused : fuse_layers(layout, plan.schemes, config.fuse_bytes)) {
    ExchangeShape shape = ExchangeShape::of(layout, fused.first_layer, config.batch, config.credits);
    shape.parameters = fused.parameters;
    try {
      add_exchanges(plan, fused, shape, channels);
    } catch (const schedule::Error& error) {
      throw gpusock::Error(EINVAL, "--scheme: " + std::string(error.what()));
    }
  }
  // What a pass moves of a chunk must fit. If all that a pass sends fits, no lane waits for room.
  plan.ring_bytes = std::max(std::bit_ceil(plan.unit_bytes + sizeof(executor::MessageHeader)), kRingBytesMin);
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    const std::uint64_t bytes = edge_bytes_max(plan.schedules[i], plan.cut_of(i));
    plan.ring_bytes = std::max(plan.ring_bytes, std::min(std::bit_ceil(bytes), kRingBytesMax));
  }
  plan.budget_bytes = config.budget_bytes;
  // In rank order, what comes too early waits in a buffer, as whole chunks. A budget's changes are added at once.
  plan.execution = {.rank_order = config.budget_bytes == 0, .weights_apart = true};
  for (int rank = 0; rank < config.nodes && config.budget_bytes != 0; ++rank) plan.changes_per_float(rank);
  return plan;
}

int connections_between(const ExchangePlan& plan, int nodes) {
  std::size_t ends = 0;
  for (int rank = 0; rank < nodes; ++rank) ends += executor::channels_of(plan.schedules, rank).size();
  return static_cast<int>(ends / 2) + nodes * (nodes - 1) / 2;
}

codec::ChangeOrder order_of(const Config& config) {
  const auto* const found = std::find(std::begin(kBudgetOrders), std::end(kBudgetOrders), config.budget_order);
  return static_cast<codec::ChangeOrder>(found - std::begin(kBudgetOrders));
}

bool has_budget(const std::string& scheme) { return schedule::moves(scheme, schedule::Moves::weights); }

}  // namespace param_sync
