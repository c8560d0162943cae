#include "plan/layer_schemes.hpp"

#include "plan/layer_exchange.hpp"
#include "param_sync/schedule/check.hpp"
#include "param_sync/schedule/schemes.hpp"
#include "param_sync/cost/cost_model.hpp"
#include "param_sync/wire/hash.hpp"

#include "gpusock/gpusock.hpp"
#include "program/arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

namespace param_sync {
namespace {

constexpr const char* kFactorsOfHybrid = "sfb";
constexpr const char* kDenseOfHybrid = "ps:even";
constexpr int kCodeBits = 8;  // bits of a code that say one layer's scheme
constexpr std::size_t kLayersInCode = 64 / kCodeBits;

// The most lanes of a layer with `auto`: all layers' lanes are resident at once, and nodes of a process share a device.
constexpr std::size_t kAutoLanesMax = 4;

std::string kilobytes(std::uint64_t bytes) { return fmt::format("{:.1f} KB", static_cast<double>(bytes) / 1e3); }

constexpr const char* kAlone = "one node sends nothing";

LayerScheme choose_hybrid(const ExchangeShape& shape) {
  if (!shape.has_factors) return {kDenseOfHybrid, "hybrid: the layer has no factors"};
  if (shape.nodes == 1) return {kFactorsOfHybrid, fmt::format("hybrid: {}", kAlone)};
  const std::uint64_t factors = busiest_bytes(make_layer_exchanges(kFactorsOfHybrid, shape)),
                      dense = busiest_bytes(make_layer_exchanges(kDenseOfHybrid, shape));
  return {factors <= dense ? kFactorsOfHybrid : kDenseOfHybrid,
          fmt::format("hybrid: a node sends {} in a step by {}, {} by {}", kilobytes(factors), kFactorsOfHybrid,
                      kilobytes(dense), kDenseOfHybrid)};
}

/// True if `auto` may choose the scheme. Three kinds of schemes are left out. Some need nodes that only sum, which
/// training does not have. Some send factors, and the layer has none. And where factors go to an owner, the busiest
/// node sends at least as many bytes as that of ps:even.
bool is_candidate(const std::string& scheme, const ExchangeShape& shape) {
  if (is_of_factors(scheme) && !shape.has_factors) return false;
  return !schedule::uses(scheme, schedule::Setting::summation_nodes) &&
         !schedule::moves(scheme, schedule::Moves::factors_to_owner);
}

/// The costs of schedules, each computed once.
class Pricing {
 public:
  explicit Pricing(const ExchangePrices& prices) : prices_(prices) {
    network_.latency_s = prices.latency_us * 1e-6;
    network_.overhead_s = prices.overhead_us * 1e-6;
    network_.bandwidth = prices.gigabits * 1e9 / 8;
    network_.reduce_bandwidth = prices.reduce_gigabytes * 1e9;
  }

  /// Returns seconds; negative if the scheme has too many lanes.
  double seconds(const std::string& scheme, const ExchangeShape& shape) {
    const LayerExchange exchange = make_layer_exchanges(scheme, shape).front();
    const auto& ranks = exchange.schedule.ranks;
    if (std::any_of(ranks.begin(), ranks.end(), [](const auto& rank) { return rank.lanes.size() > kAutoLanesMax; })) {
      return -1;
    }
    const auto key = std::pair(scheme, exchange.schedule.chunks);
    if (!costs_.contains(key)) costs_[key] = cost::costs_of(exchange.schedule, schedule::check(exchange.schedule));
    const double sent_s = cost::predicted_s(costs_[key], static_cast<double>(exchange.floats * sizeof(float)),
                                            network_);
    if (exchange.carries != Carries::factors) return sent_s;
    const double others = static_cast<double>(shape.nodes - 1) * shape.batch;
    return sent_s + others * shape.parameters / (prices_.multiply_adds * 1e9);
  }

 private:
  ExchangePrices prices_;
  cost::NetworkModel network_;
  std::map<std::pair<std::string, int>, cost::Costs> costs_;  // by scheme and chunks
};

LayerScheme choose_cheapest(Pricing& pricing, const ExchangeShape& shape) {
  std::vector<std::pair<double, std::string>> prices;
  for (const std::string& scheme : training_schemes()) {
    if (!is_candidate(scheme, shape)) continue;
    if (const double seconds = pricing.seconds(scheme, shape); seconds >= 0) prices.emplace_back(seconds, scheme);
  }
  std::stable_sort(prices.begin(), prices.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  if (shape.nodes == 1) return {prices[0].second, fmt::format("auto: {}", kAlone)};
  return {prices[0].second, fmt::format("auto: {:.3f} ms, the next is {} with {:.3f} ms; a node sends {} in a step",
                                        prices[0].first * 1e3, prices[1].second, prices[1].first * 1e3,
                                        kilobytes(busiest_bytes(make_layer_exchanges(prices[0].second, shape))))};
}

std::size_t index_of(const std::string& scheme) {
  const auto& names = training_schemes();
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), scheme) - names.begin());
}

std::string scheme_in(std::uint64_t code, int layer) {
  const auto index = static_cast<std::size_t>(code >> (kCodeBits * layer) & ((1u << kCodeBits) - 1));
  return index < training_schemes().size() ? training_schemes()[index] : "an unknown scheme";
}

}  // namespace

std::vector<LayerScheme> choose_schemes(const Config& config, const Layout& layout) {
  const std::vector<std::string> parts = scheme_parts(config.scheme);
  std::vector<LayerScheme> schemes;
  Pricing pricing(config.prices);
  try {
    for (int layer = 0; layer < layout.size(); ++layer) {
      const std::string& part = parts.size() == 1 ? parts.front() : parts.at(static_cast<std::size_t>(layer));
      const ExchangeShape shape = ExchangeShape::of(layout, layer, config.batch, config.credits);
      if (part == kHybridScheme) {
        schemes.push_back(choose_hybrid(shape));
      } else if (part == kAutoScheme) {
        schemes.push_back(choose_cheapest(pricing, shape));
      } else {
        schemes.push_back({part, ""});
      }
    }
  } catch (const schedule::Error& error) {
    throw gpusock::Error(EINVAL, "--scheme: " + std::string(error.what()));
  }
  return schemes;
}

std::uint64_t code_of(const std::vector<LayerScheme>& schemes) {
  std::uint64_t code = 0;
  if (schemes.size() > kLayersInCode) {
    for (const LayerScheme& of : schemes) code = fnv1a(of.scheme.c_str(), of.scheme.size() + 1, code);
    return code;
  }
  for (std::size_t layer = 0; layer < schemes.size(); ++layer) {
    code |= std::uint64_t{index_of(schemes[layer].scheme)} << (kCodeBits * layer);
  }
  return code;
}

std::string describe_difference(std::uint64_t theirs, std::uint64_t ours, const Layout& layout) {
  if (layout.layers.size() > kLayersInCode) return "they differ in some layer";
  for (int layer = 0; layer < layout.size(); ++layer) {
    const std::string there = scheme_in(theirs, layer), here = scheme_in(ours, layer);
    if (there != here) return fmt::format("layer {} has {} there, {} here", layout[layer].name(), there, here);
  }
  return "";
}

const std::vector<std::string>& training_schemes() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const std::string& scheme : schedule::scheme_names()) {
      if (!schedule::uses(scheme, schedule::Setting::topology)) all.push_back(scheme);
    }
    const auto& of_factors = schedule::factor_scheme_names();
    all.insert(all.end(), of_factors.begin(), of_factors.end());
    return all;
  }();
  return names;
}

std::vector<std::string> scheme_parts(const std::string& text) { return gpusock::program::split(text); }

bool all_parts(const std::string& text, bool (*is_such)(const std::string&)) {
  const auto parts = scheme_parts(text);
  return std::all_of(parts.begin(), parts.end(), is_such);
}

bool chooses_by_prices(const std::string& scheme) {
  return !all_parts(scheme, [](const std::string& part) { return part != kAutoScheme; });
}

std::string prices_text(const ExchangePrices& prices) {
  std::vector<double> values;
  for (const auto price : kPrices) values.push_back(prices.*price);
  return fmt::format("{:.9g}", fmt::join(values, ","));
}

std::string scheme_problem(const std::string& text, const std::vector<AnyLayer>& layers) {
  const std::vector<std::string> parts = scheme_parts(text);
  const auto& names = training_schemes();
  for (const std::string& part : parts) {
    const bool known = part == kHybridScheme || part == kAutoScheme ||
                       std::find(names.begin(), names.end(), part) != names.end();
    if (!known) {
      return fmt::format("'{}' is no scheme; there are: {}, {}, {}", part, fmt::join(names, ", "), kHybridScheme,
                         kAutoScheme);
    }
  }
  if (parts.size() != 1 && parts.size() != layers.size()) {
    return fmt::format(
        "'{}' has {} schemes, but the model has {} layers (--model, --hidden): give one for each, from the first "
        "to the last, or one for all",
        text, parts.size(), layers.size());
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string& part = parts.size() == 1 ? parts.front() : parts[i];
    const Layer layer{layers[i]};
    if (is_of_factors(part) && !layer.has_factors()) {
      return fmt::format("'{}' sends factors, and layer {} of the model ({}) has none: give that layer another scheme",
                         part, i + 1, layer.name());
    }
  }
  return "";
}

}  // namespace param_sync
