#include "simulate/buckets.hpp"

#include "param_sync/schedule/factors.hpp"
#include "param_sync/schedule/schemes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace param_sync::simulate {
namespace {

constexpr double kFloatBytes = 4;

schedule::FactorShape shape_of(const models::Layer& layer, int batch) {
  return {static_cast<double>(layer.rows), static_cast<double>(layer.columns), static_cast<double>(batch)};
}

// Most chunks times ranks of a schedule. A larger schedule takes minutes to make, and longer to simulate.
constexpr std::int64_t kPartsMax = 1 << 21;

}  // namespace

bool is_for_factors(const std::string& scheme) { return scheme == kHybrid || schedule::moves_factors(scheme); }

Buckets::Buckets(const models::Model& model, const TrainingSettings& settings)
    : model_(model), settings_(settings), bucket_of_(model.layers.size(), schedule::kNobody) {
  for (int layer = static_cast<int>(model.layers.size()) - 1; layer >= 0; --layer) add_layer(layer);
  if (open_bytes_ > 0) add_dense(open_, open_bytes_);
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    for (int layer = buckets_[bucket].first_layer; layer <= buckets_[bucket].last_layer; ++layer) {
      if (model.layers[static_cast<std::size_t>(layer)].parameters > 0) {
        bucket_of_[static_cast<std::size_t>(layer)] = static_cast<int>(bucket);
      }
    }
  }
  std::reverse(layers_.begin(), layers_.end());
}

std::uint64_t Buckets::messages_of_step() const {
  std::map<const Plan*, std::uint64_t> of_plan;
  std::uint64_t all = 0;
  for (const Bucket& bucket : buckets_) {
    for (const Exchange& unit : bucket.units) {
      const auto [found, is_new] = of_plan.try_emplace(unit.plan);
      if (is_new) found->second = unit.plan->messages();
      all += found->second;
    }
  }
  return all;
}

std::string Buckets::scheme_of(const models::Layer& layer) const {
  if (!is_for_factors(settings_.scheme)) return settings_.scheme;
  if (layer.rows == 0) return settings_.dense;
  if (settings_.scheme != kHybrid) return settings_.scheme;
  return schedule::prefers_factors(shape_of(layer, settings_.batch), settings_.nodes) ? "sfb" : settings_.dense;
}

const Plan& Buckets::plan(const std::string& scheme, int owner) {
  const auto [found, is_new] = plan_of_.emplace(std::pair{scheme, owner}, nullptr);
  if (is_new) {
    schedule::Request request;
    request.nodes = settings_.nodes;
    request.summation_nodes = settings_.summation_nodes;
    request.owner = owner;
    const std::int64_t ranks = settings_.nodes + settings_.summation_nodes;
    if (schedule::default_chunks(scheme, request) * ranks > kPartsMax) {
      throw schedule::Error(fmt::format(
          "{} of {} nodes has too many messages for a training in virtual time: take fewer nodes, or {} rhd, which has "
          "fewer messages",
          scheme, settings_.nodes, is_for_factors(settings_.scheme) ? "--dense" : "--scheme"));
    }
    plans_.emplace_back(schedule::generate(scheme, request));
    found->second = &plans_.back();
  }
  return *found->second;
}

void Buckets::add_layer(int index) {
  const models::Layer& layer = model_.layers[static_cast<std::size_t>(index)];
  if (layer.parameters == 0) return;
  const std::string scheme = scheme_of(layer);
  const double bytes = layer.parameters * kFloatBytes;
  if (schedule::moves_factors(scheme)) {
    if (open_bytes_ > 0) add_dense(open_, std::exchange(open_bytes_, 0));
    return add_factors(index, scheme);
  }
  const double nodes = settings_.nodes;
  layers_.push_back({layer.name, scheme, 2 * (nodes - 1) / nodes * bytes * 1e-6});
  if (open_bytes_ == 0) open_.last_layer = index;
  open_.first_layer = index;
  open_bytes_ += bytes;
  if (open_bytes_ >= settings_.fuse_bytes) add_dense(open_, std::exchange(open_bytes_, 0));
}

/// Adds a bucket that is exchanged in units of the same size.
void Buckets::add_dense(Bucket bucket, double bytes) {
  const Plan& by = plan(is_for_factors(settings_.scheme) ? settings_.dense : settings_.scheme);
  const double units = std::ceil(bytes / settings_.unit_bytes), chunk_bytes = bytes / units / by.chunks();
  const int priority = settings_.order == Order::priority ? bucket.first_layer : 0;
  bucket.units.assign(static_cast<std::size_t>(units), {&by, chunk_bytes, chunk_bytes, 0, priority});
  buckets_.push_back(std::move(bucket));
}

void Buckets::add_factors(int index, const std::string& scheme) {
  const models::Layer& layer = model_.layers[static_cast<std::size_t>(index)];
  const schedule::FactorShape shape = shape_of(layer, settings_.batch);
  const schedule::LayerFloats floats = schedule::layer_floats(shape, settings_.nodes);
  const double factors = shape.samples * (shape.rows + shape.columns) * kFloatBytes;
  const double others_flops = 2 * (settings_.nodes - 1) * shape.samples * shape.rows * shape.columns;
  const double rebuild_s = settings_.free_rebuild ? 0 : others_flops / settings_.flops_per_s;
  Bucket bucket;
  bucket.first_layer = bucket.last_layer = index;
  const int priority = settings_.order == Order::priority ? index : 0;
  if (schedule::moves(scheme, schedule::Moves::factors_to_all)) {  // a chunk is one node's factors
    bucket.rebuild_s = rebuild_s;
    bucket.units.push_back({&plan(scheme), factors, factors, 0, priority});
    layers_.push_back({layer.name, scheme, floats.broadcast * kFloatBytes * 1e-6});
  } else {
    const Plan& by = plan(scheme, index % settings_.nodes);  // so neighbouring layers have different servers
    const double units = std::ceil(layer.parameters * kFloatBytes / by.chunks() / settings_.unit_bytes);
    const double parts = units * by.chunks();
    bucket.units.assign(static_cast<std::size_t>(units),
                        {&by, layer.parameters * kFloatBytes / parts, factors / parts, rebuild_s / parts, priority});
    layers_.push_back({layer.name, scheme, floats.factor_server * kFloatBytes * 1e-6});
  }
  buckets_.push_back(std::move(bucket));
}

}  // namespace param_sync::simulate
