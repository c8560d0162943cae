#include "training/run_settings.hpp"

#include "param_sync/wire/hash.hpp"

#include <bit>
#include <cstddef>
#include <variant>

namespace param_sync {

namespace {

std::uint64_t code_of(const StoreCodec& codec) {
  const std::uint64_t parts[] = {static_cast<std::uint64_t>(codec.push),
                                 static_cast<std::uint64_t>(codec.pull),
                                 std::bit_cast<std::uint64_t>(codec.share),
                                 codec.takes_random ? 1u : 0u,
                                 codec.keeps_others ? 1u : 0u,
                                 std::bit_cast<std::uint64_t>(codec.bytes_per_s)};
  return fnv1a(parts, sizeof parts);
}

/// A number that is another one for nodes that stay together in another way, or whose owners do other things.
std::uint64_t code_of(const Plan& plan) {
  const SyncPlan& sync = plan.sync;
  std::uint64_t of_clock = 0;
  if (const Ssp* const ssp = std::get_if<Ssp>(&sync.clock)) of_clock = ssp->staleness;
  if (const Backup* const backup = std::get_if<Backup>(&sync.clock)) of_clock = backup->backups | backup->grace_ns << 8;
  if (const Coded* const coded = std::get_if<Coded>(&sync.clock)) of_clock = coded->stragglers;
  const std::uint64_t parts[] = {sync.clock.index(), of_clock,        sync.local_steps, sync.pull_every,
                                 sync.depth,         sync.tree_depth, sync.slots.count, sync.by_layer ? 1u : 0u,
                                 sync.overlap};
  const float of_owners[] = {plan.owners.learning_rate,
                             plan.owners.momentum,
                             plan.owners.scale,
                             static_cast<float>(plan.owners.nesterov),
                             plan.correction.compensation,
                             static_cast<float>(plan.correction.divides_by_lag)};
  return fnv1a(of_owners, sizeof of_owners, fnv1a(parts, sizeof parts, code_of(plan.codec)));
}

}  // namespace

RunSettings run_settings(const Config& config, const Dataset& data, const Plan& plan, const ExchangePlan& exchange,
                         std::uint64_t first_step) {
  RunSettings settings{};
  const auto at = [&](RunSetting setting) -> std::uint64_t& { return settings[static_cast<std::size_t>(setting)]; };
  at(RunSetting::version) = kRunSettingsVersion;
  at(RunSetting::nodes) = static_cast<std::uint64_t>(config.nodes);
  at(RunSetting::model) = layout_of(config, shape_of(data).sample, config.nodes).fingerprint();
  at(RunSetting::data) = data.fingerprint();
  at(RunSetting::steps) = plan.steps;
  at(RunSetting::batch) = config.batch;
  at(RunSetting::seed) = config.seed;
  at(RunSetting::optimizer) = std::uint64_t{std::bit_cast<std::uint32_t>(config.learning_rate)} << 32 |
                              std::bit_cast<std::uint32_t>(config.momentum);
  if (config.warmup_steps != 0) {  // else as checkpoints have it that were written before there was a warm-up
    at(RunSetting::optimizer) = fnv1a(&config.warmup_steps, sizeof config.warmup_steps, at(RunSetting::optimizer));
  }
  if (config.elastic_lr_nodes != 0) {  // likewise
    const auto nodes = static_cast<std::uint64_t>(config.elastic_lr_nodes);
    at(RunSetting::optimizer) = fnv1a(&nodes, sizeof nodes, at(RunSetting::optimizer) + 1);
  }
  at(RunSetting::scheme) = code_of(exchange.schemes);
  at(RunSetting::transfer) = fnv1a(&config.budget_bytes, sizeof config.budget_bytes,
                                   static_cast<std::uint64_t>(order_of(config)) << 48 | config.fuse_bytes |
                                       static_cast<std::uint64_t>(config.credits) << 32);
  at(RunSetting::first_step) = first_step;
  at(RunSetting::sync) = config.sync.empty() ? 0 : code_of(plan);
  if (config.replicas != 1) {
    at(RunSetting::sync) = fnv1a(&config.replicas, sizeof config.replicas, at(RunSetting::sync));
  }
  return settings;
}

RunSettings settings_to_join(const Config& config, const Dataset& data) {
  Config one = config;
  one.nodes = 1;
  one.rank = 0;
  const Plan plan = Plan::make(one, data);
  RunSettings settings = run_settings(one, data, plan, make_exchange_plan(one, plan.layout), 0);
  // Nodes find each other's addresses with their own --link.
  std::uint64_t& transfer = settings[static_cast<std::size_t>(RunSetting::transfer)];
  transfer = fnv1a(&config.link, sizeof config.link, transfer);
  return settings;
}

}  // namespace param_sync
