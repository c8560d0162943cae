#pragma once
/// @file The layers of the model, where their parameters lie, and the nodes that train it.

#include "layers/layer.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace param_sync {

inline constexpr int kNodesMax = 64;
inline constexpr int kLayersMax = 64;  ///< a step launches up to eleven kernels for each layer: training/queued.hpp
inline constexpr std::uint32_t kWidthMax = 1 << 16;  ///< inputs or outputs of a layer

/// The model, from its first layer to the last, and how many nodes train it.
struct Layout {
  int nodes = 0;
  std::vector<Layer> layers;
  std::uint32_t border = 0;  ///< pixels of background on each side of an image, which the first layer reads, too

  int size() const { return static_cast<int>(layers.size()); }  ///< number of layers
  const Layer& operator[](int layer) const { return layers[static_cast<std::size_t>(layer)]; }
  std::uint32_t parameters() const { return layers.back().offset + layers.back().parameters(); }

  /// A number that differs if models or numbers of nodes differ. Nodes compare it.
  std::uint64_t fingerprint() const;
};

/// Lays out a model of these layers. Throws gpusock::Error (EINVAL) if a limit is exceeded, two neighbouring layers do
/// not fit, the last one has an activation, or a layer has fewer parameters than there are nodes.
Layout make_layout(const std::vector<AnyLayer>& layers, int nodes);

/// Lays out the trainer's model of these widths, perceptron(), in the same way.
Layout make_layout(std::span<const std::uint32_t> widths, int nodes);

/// The parameters that training begins with, the same on every node.
std::vector<float> initial_weights(const Layout& layout, std::uint64_t seed);

}  // namespace param_sync
