#pragma once
/// @file The kinds of layers; a model is a list of layers. README.md says what a kind must have.

#include "layers/dense.hpp"

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace param_sync {

/// Any kind of layer: each kind has a type in this list. For the host: kernels are templates of the kind, and
/// std::visit() picks the right one.
using AnyLayer = std::variant<Dense>;

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
