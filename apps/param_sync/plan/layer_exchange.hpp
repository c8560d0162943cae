#pragma once
/// @file The schedules by which a layer, or neighbouring layers together, are exchanged in training.

#include "layout/layout.hpp"
#include "param_sync/schedule/schedule.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace param_sync {

/// What an exchange moves.
enum class Carries : std::uint8_t {
  gradients,  ///< and sums of them; of a parameter server also the weights
  factors,    ///< all nodes' activations and errors: the receiver makes the gradients
  weights     ///< made by their owner, from factors
};

/// An exchange of a layer: a layer has one or two, which follow each other.
struct LayerExchange {
  schedule::Schedule schedule;
  Carries carries = Carries::gradients;
  std::uint64_t floats = 0;  ///< of what is exchanged
};

/// For whom the exchanges are made.
struct ExchangeShape {
  int nodes = 1;
  int slots = 0;
  std::uint32_t batch = 0;  ///< samples of a step on each node
  int layer = 0;            ///< the first one
  std::uint32_t parameters = 0;
  std::uint32_t inputs = 0;  ///< of a single layer
  std::uint32_t outputs = 0;

  static ExchangeShape of(const Layout& layout, int layer, std::uint32_t batch, int slots);
};

/// True if the scheme moves factors.
bool is_of_factors(const std::string& scheme);

/// The node that makes the layer's weights, by adam-fc: neighbouring layers have different ones.
int factor_owner(int layer, int nodes);

/// Throws schedule::Error where there is no such schedule.
std::vector<LayerExchange> make_layer_exchanges(const std::string& scheme, const ExchangeShape& shape);

/// What the node sends in a step that sends most, headers included.
std::uint64_t busiest_bytes(const std::vector<LayerExchange>& exchanges);

/// A unit of a pass is no larger.
inline constexpr std::uint64_t kUnitBytesMax = 256 << 10;

/// The bytes of the largest chunk.
std::uint64_t chunk_bytes_max(const LayerExchange& exchange);

}  // namespace param_sync
