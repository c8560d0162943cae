#include "training/run_settings.hpp"

#include "param_sync/wire/hash.hpp"

#include <bit>
#include <cstddef>

namespace param_sync {

RunSettings run_settings(const Config& config, const Dataset& data, const Plan& plan, const ExchangePlan& exchange,
                         std::uint64_t first_step) {
  RunSettings settings{};
  const auto at = [&](RunSetting setting) -> std::uint64_t& { return settings[static_cast<std::size_t>(setting)]; };
  at(RunSetting::version) = kRunSettingsVersion;
  at(RunSetting::nodes) = static_cast<std::uint64_t>(config.nodes);
  at(RunSetting::model) = plan.layout.fingerprint();
  at(RunSetting::data) = data.fingerprint();
  at(RunSetting::steps) = plan.steps;
  at(RunSetting::batch) = config.batch;
  at(RunSetting::seed) = config.seed;
  at(RunSetting::optimizer) = std::uint64_t{std::bit_cast<std::uint32_t>(config.learning_rate)} << 32 |
                              std::bit_cast<std::uint32_t>(config.momentum);
  at(RunSetting::scheme) = code_of(exchange.schemes);
  at(RunSetting::transfer) = fnv1a(&config.budget_bytes, sizeof config.budget_bytes,
                                   config.fuse_bytes | static_cast<std::uint64_t>(config.credits) << 32);
  at(RunSetting::first_step) = first_step;
  at(RunSetting::sync) = config.sync.empty() ? 0 : fnv1a(config.sync.data(), config.sync.size());
  return settings;
}

}  // namespace param_sync
