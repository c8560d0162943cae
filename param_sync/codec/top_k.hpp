#pragma once
/// @file The settings of top_k.cuh, for the host.

#include "param_sync/codec/part.hpp"

#include "gpusock/gpusock.hpp"

#include <cerrno>
#include <cstdint>
#include <string>

namespace param_sync::codec {

class TopK;

/// Which changes go first. Wei et al. (see top_k.cuh) compare these orders.
enum class ChangeOrder : std::uint8_t {
  largest,  ///< those of the largest absolute value
  random,   ///< any; which ones, the step decides
  oldest    ///< floats take turns
};

/// The codec sends the floats of each tensor that changed most, and keeps the other changes for later steps.
struct TopKSettings {
  using Codec = TopK;  ///< the codec's type in kernels
  /// Bytes that a rank may send in a step, on average over all steps so far. The last step sends all that is left.
  std::uint64_t budget_bytes = 0;
  ChangeOrder order = ChangeOrder::largest;  ///< which changes are sent, if not all are
};

/// A change of one float of a tensor: a gradient is added to the float, a weight replaces it.
struct Change {
  std::uint32_t index = 0;  ///< index of the float in the tensor
  float value = 0;          ///< the gradient, or the new weight
};

/// Returns how many changes a rank may send per float, so that a step takes `budget_bytes` bytes, headers included. If
/// it is 0.5 or more, the rank may send all floats. Throws gpusock::Error (EINVAL) if the headers alone take more.
inline double changes_per_float(const StepTraffic& sent, std::uint64_t budget_bytes) {
  const std::uint64_t headers_bytes = sent.messages * sent.header_bytes;
  if (budget_bytes < headers_bytes) {
    throw gpusock::Error(EINVAL, "a budget of " + std::to_string(budget_bytes) + " bytes: rank " +
                                     std::to_string(sent.rank) + " sends " + std::to_string(sent.messages) +
                                     " messages in a step, whose headers alone have " + std::to_string(headers_bytes) +
                                     " bytes; take more, or ps:even and fusion, which have the fewest messages");
  }
  const auto left = static_cast<double>(budget_bytes - headers_bytes);
  if (left >= static_cast<double>(sent.floats * sizeof(float))) return 0.5;  // also if there are no floats
  return left / static_cast<double>(sent.floats * sizeof(Change));
}

}  // namespace param_sync::codec
