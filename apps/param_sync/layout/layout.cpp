#include "layout/layout.hpp"

#include "param_sync/wire/hash.hpp"
#include "layout/random.hpp"
#include "gpusock/gpusock.hpp"

#include <algorithm>
#include <string>

namespace param_sync {
namespace {

constexpr std::uint64_t kLayerParametersMax = 1u << 28;
constexpr std::uint32_t kParametersMax = 1u << 30;
constexpr std::uint32_t kSumsMax = 1u << 18;  // kernels count those of a batch in 32 bits

[[noreturn]] void refuse(const std::string& problem) { throw gpusock::Error(EINVAL, "model: " + problem); }

void check_size(const Layer& layer, int nodes) {
  const std::uint64_t inputs = layer.inputs(), outputs = layer.outputs();
  if (inputs == 0 || outputs == 0 || std::max(inputs, outputs) > kWidthMax) {
    refuse("layer widths must be from 1 to " + std::to_string(kWidthMax));
  }
  if (layer.sum_count() > kSumsMax) refuse("layer " + layer.name() + " has more than 2^18 sums");
  std::uint64_t parameters = 0;  // parameters() has 32 bits
  for (const TensorShape& tensor : layer.tensors()) parameters += tensor.floats();
  if (parameters > kLayerParametersMax) refuse("a layer has more than 2^28 parameters");
  if (layer.parameters() < static_cast<std::uint32_t>(nodes)) {
    refuse("layer " + layer.name() + " has fewer parameters than there are nodes; widen it with --hidden");
  }
}

}  // namespace

Layout make_layout(const std::vector<AnyLayer>& layers, int nodes) {
  if (nodes < 1 || nodes > kNodesMax)
    refuse(std::to_string(nodes) + " nodes; it takes 1 to " + std::to_string(kNodesMax));
  if (layers.empty() || layers.size() > kLayersMax)
    refuse(std::to_string(layers.size()) + " layers; it takes 1 to " + std::to_string(kLayersMax) + ": see --hidden");
  Layout layout;
  layout.nodes = nodes;
  std::uint32_t offset = 0;
  for (const AnyLayer& kind : layers) {
    const Layer layer{kind, offset};
    check_size(layer, nodes);
    if (!layout.layers.empty() && layout.layers.back().outputs() != layer.inputs()) {
      refuse("layer " + layer.name() + " follows layer " + layout.layers.back().name() + ", which has other outputs");
    }
    layout.layers.push_back(layer);
    offset += layer.parameters();
    if (offset > kParametersMax) refuse("more than 2^30 parameters");
  }
  if (layout.layers.back().has_activation()) refuse("the last layer has an activation: the loss takes its plain sums");
  return layout;
}

Layout make_layout(std::span<const std::uint32_t> widths, int nodes) { return make_layout(perceptron(widths), nodes); }

std::uint64_t Layout::fingerprint() const {
  std::uint64_t hash = fnv1a(&nodes, sizeof nodes);
  for (const Layer& layer : layers) {
    const std::string text = layer.description();
    hash = fnv1a(text.data(), text.size() + 1, hash);
  }
  return hash;
}

std::vector<float> initial_weights(const Layout& layout, std::uint64_t seed) {
  std::vector<float> weights(layout.parameters(), 0.0f);
  Random random(seed);
  for (const Layer& layer : layout.layers) {
    const auto own = std::span(weights).subspan(layer.offset, layer.parameters());
    std::visit([&](const auto& kind) { kind.initialize(own, [&] { return random.symmetric(); }); }, layer.kind);
  }
  return weights;
}

}  // namespace param_sync
