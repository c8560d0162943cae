#pragma once
/// @file The kinds of layers, and the models that the trainer makes of them. README.md says what a kind must have.

#include "layers/batch_norm.hpp"
#include "layers/conv2d.hpp"
#include "layers/dense.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace param_sync {

/// Any kind of layer: each kind has a type in this list. For the host: kernels are templates of the kind, and
/// std::visit() picks the right one.
using AnyLayer = std::variant<Dense, Conv2d, BatchNorm>;

/// The layer as it computes after the training. A kind that then computes otherwise has a function of its own.
template <class Kind>
Kind evaluated(const Kind& layer) {
  return layer;
}

/// A kind whose kernels need numbers of all nodes within a step.
template <class Kind>
concept SharesNumbers = requires(Kind layer) {
  layer.shared_floats();
};

/// A multilayer perceptron: fully connected layers, all but the last with ReLU. The numbers in
/// `widths` are those of inputs, of outputs of each hidden layer, and of classes.
inline std::vector<AnyLayer> perceptron(std::span<const std::uint32_t> widths) {
  std::vector<AnyLayer> layers;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    layers.emplace_back(
        Dense::of(widths[i], widths[i + 1], i + 2 < widths.size() ? Activation::relu : Activation::none));
  }
  return layers;
}

/// The fewest rows, and columns, of an image for lenet().
inline constexpr std::uint32_t kLenetPixelsMin = 12;
/// The pixels of background on each side of an image for lenet(): 28 x 28 pixels become 32 x 32, as in the paper.
inline constexpr std::uint32_t kLenetBorder = 2;

/// LeNet-5 (LeCun et al., Proceedings of the IEEE, 1998), as it is trained today, for images with one channel: two
/// convolutions with ReLU and max pooling, and three fully connected layers. The first layer also reads the border.
/// With `normalizes` the outputs of convolutions are normalized between pooling and ReLU, by the batch of a node or,
/// with `of_all_nodes`, of all.
inline std::vector<AnyLayer> lenet(std::uint32_t rows, std::uint32_t columns, std::uint32_t classes,
                                   bool normalizes = false, bool of_all_nodes = false) {
  const Activation pooled = normalizes ? Activation::none : Activation::relu;
  const Conv2d first = Conv2d::of({rows + 2 * kLenetBorder, columns + 2 * kLenetBorder, 1}, 5, 6, 2, pooled);
  const Conv2d second = Conv2d::of(first.output_image(), 5, 16, 2, pooled);
  const std::uint32_t widths[] = {second.outputs, 120, 84, classes};
  std::vector<AnyLayer> layers = perceptron(widths);
  layers.insert(layers.begin(), {first, second});
  if (!normalizes) return layers;
  layers.insert(layers.begin() + 2, BatchNorm::of(second.output_image(), Activation::relu, of_all_nodes));
  layers.insert(layers.begin() + 1, BatchNorm::of(first.output_image(), Activation::relu, of_all_nodes));
  return layers;
}

/// A layer of a model.
struct Layer {
  AnyLayer kind;
  std::uint32_t offset = 0;  ///< index of its first parameter in the model

  std::uint32_t inputs() const {
    return std::visit([](const auto& of) { return of.inputs; }, kind);
  }
  std::uint32_t outputs() const {
    return std::visit([](const auto& of) { return of.outputs; }, kind);
  }
  std::uint32_t parameters() const {
    return std::visit([](const auto& of) { return of.parameters(); }, kind);
  }
  /// Blocks of the kernel that computes the gradient with respect to its parameters.
  std::uint32_t blocks() const {
    return std::visit([](const auto& of) { return of.blocks(); }, kind);
  }
  /// Sums of a sample, of which its outputs are made.
  std::uint32_t sum_count() const {
    return std::visit([](const auto& of) { return of.sum_count(); }, kind);
  }
  Sums sums() const {
    return std::visit([](const auto& of) { return of.sums(); }, kind);
  }
  /// Bands of weights in a panel of the product that makes its outputs: 1 unless --tile cuts it.
  std::uint32_t bands() const {
    const auto* const dense = std::get_if<Dense>(&kind);
    return dense == nullptr ? 1 : dense->forward_bands().count();
  }
  /// Sums that a step with so many samples passes on from band to band. `below`: the layer below; null for the first
  /// one, whose inputs have no errors.
  std::uint64_t passed_sums(std::uint32_t batch, const Layer* below) const {
    const auto* const dense = std::get_if<Dense>(&kind);
    if (dense == nullptr) return 0;
    const std::uint64_t of_errors = below == nullptr ? 0 : dense->backward_bands(below->sums()).passed(batch);
    return dense->forward_bands().passed(batch) + of_errors;
  }
  bool has_factors() const {
    return std::visit([](const auto& of) { return of.kHasFactors; }, kind);
  }
  /// Floats that each node shares with all others within a step, in each direction; 0 for most layers.
  std::uint32_t shared_floats() const {
    return std::visit(
        []<class Kind>(const Kind& of) -> std::uint32_t {
          if constexpr (SharesNumbers<Kind>) return of.shared_floats();
          return 0;
        },
        kind);
  }
  bool has_activation() const {
    return std::visit([](const auto& of) { return of.has_activation(); }, kind);
  }
  /// Its name in messages and reports: "784 x 128".
  std::string name() const {
    return std::visit([](const auto& of) { return of.name(); }, kind);
  }
  std::string description() const {
    return std::visit([](const auto& of) { return of.description(); }, kind);
  }
  std::vector<TensorShape> tensors() const {
    return std::visit([](const auto& of) { return of.tensors(); }, kind);
  }
};

}  // namespace param_sync
