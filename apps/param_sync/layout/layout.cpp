#include "layout/layout.hpp"

#include "param_sync/wire/hash.hpp"
#include "layout/random.hpp"
#include "gpusock/gpusock.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace param_sync {
namespace {

constexpr std::uint32_t kTilesWanted = 64;  // tiles of a block: one for each of its threads

[[noreturn]] void refuse(const std::string& problem) { throw gpusock::Error(EINVAL, "model: " + problem); }

}  // namespace

std::string name_of(const LayerShape& shape) {
  return std::to_string(shape.inputs) + " x " + std::to_string(shape.outputs);
}

Layout make_layout(std::span<const std::uint32_t> widths, int nodes) {
  if (nodes < 1 || nodes > kNodesMax)
    refuse(std::to_string(nodes) + " nodes; it takes 1 to " + std::to_string(kNodesMax));
  if (widths.size() < 2 || widths.size() > kLayersMax + 1) {
    refuse("at most " + std::to_string(kLayersMax - 1) + " hidden layers; give fewer with --hidden");
  }
  Layout layout;
  layout.nodes = nodes;
  std::uint32_t offset = 0;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    if (widths[i] == 0 || widths[i + 1] == 0 || std::max(widths[i], widths[i + 1]) > kWidthMax) {
      refuse("layer widths must be from 1 to " + std::to_string(kWidthMax));
    }
    LayerShape shape{widths[i], widths[i + 1], offset};
    if ((std::uint64_t{shape.inputs} + 1) * shape.outputs > (1u << 28)) refuse("a layer has more than 2^28 parameters");
    if (shape.parameters() < static_cast<std::uint32_t>(nodes)) {
      refuse("layer " + name_of(shape) + " has fewer parameters than there are nodes; widen it with --hidden");
    }
    shape.tiles_per_block = std::max(1u, kTilesWanted / ((shape.outputs + 3) / 4));
    layout.layer[layout.layers++] = shape;
    offset += shape.parameters();
    if (offset > (1u << 30)) refuse("more than 2^30 parameters");
  }
  return layout;
}

std::uint64_t Layout::fingerprint() const {
  std::uint64_t hash = fnv1a(&nodes, sizeof nodes);
  for (int i = 0; i < layers; ++i) {
    hash = fnv1a(&layer[i].inputs, sizeof layer[i].inputs, hash);
    hash = fnv1a(&layer[i].outputs, sizeof layer[i].outputs, hash);
  }
  return hash;
}

std::vector<float> initial_weights(const Layout& layout, std::uint64_t seed) {
  std::vector<float> weights(layout.parameters(), 0.0f);
  Random random(seed);
  for (int i = 0; i < layout.layers; ++i) {
    const LayerShape& shape = layout.layer[i];
    const float limit = std::sqrt(6.0f / static_cast<float>(shape.inputs));
    for (std::uint32_t k = 0; k < shape.inputs * shape.outputs; ++k)
      weights[shape.offset + k] = limit * random.symmetric();
  }
  return weights;
}

}  // namespace param_sync
