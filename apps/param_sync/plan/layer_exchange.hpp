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
  gradients,  ///< gradients, and sums of them; with a parameter server also weights
  factors,    ///< all nodes' activations and errors: the receiver makes the gradients
  weights,    ///< weights that their owner has made from factors
  numbers     ///< numbers that nodes share within a step, for kernels that need those of all
};

/// One exchange of a layer. A layer has one, or two that follow each other.
struct LayerExchange {
  schedule::Schedule schedule;
  Carries carries = Carries::gradients;
  std::uint64_t floats = 0;  ///< floats that are exchanged
};

/// What the schedules of a layer's exchanges depend on.
struct ExchangeShape {
  int nodes = 1;
  int credits = 0;
  std::uint32_t batch = 0;  ///< samples of a step on each node
  int layer = 0;            ///< the first layer
  std::uint32_t parameters = 0;
  std::uint32_t inputs = 0;  ///< of a single layer
  std::uint32_t outputs = 0;
  bool has_factors = true;  ///< true if a single layer's factors may be exchanged

  static ExchangeShape of(const Layout& layout, int layer, std::uint32_t batch, int credits);
};

/// True if the scheme moves factors.
bool is_of_factors(const std::string& scheme);

/// The node that makes the layer's weights with adam-fc. Neighbouring layers have different owners.
int factor_owner(int layer, int nodes);

/// Throws schedule::Error if there is no such schedule, or if it moves factors and the layer has none.
std::vector<LayerExchange> make_layer_exchanges(const std::string& scheme, const ExchangeShape& shape);

/// Returns the exchange of numbers that nodes share within a step: `floats` of each node, which all gather.
LayerExchange make_number_exchange(int nodes, std::uint32_t floats);

/// Bytes that the busiest node sends in a step, headers included.
std::uint64_t busiest_bytes(const std::vector<LayerExchange>& exchanges);

/// Bytes of the largest unit. A unit is what a pass moves of a chunk.
inline constexpr std::uint64_t kUnitBytesMax = 256 << 10;

/// The bytes of the largest chunk.
std::uint64_t chunk_bytes_max(const LayerExchange& exchange);

}  // namespace param_sync
