#pragma once
/// @file How a layer names and counts its parameters.

#include "gpusock/types.hpp"

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

namespace param_sync {

/// A tensor of a layer's parameters, which lie one after the other in row-major order.
struct TensorShape {
  std::string name;
  std::vector<std::uint32_t> shape;

  std::uint64_t floats() const {
    return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
  }
};

/// Parameters from `begin` up to and not including `end`, counted from the layer's first.
struct Range {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  GPUSOCK_FN std::uint32_t size() const { return end - begin; }
};

}  // namespace param_sync
