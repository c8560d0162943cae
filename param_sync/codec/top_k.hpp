#pragma once
/// @file The settings of top_k.cuh, for the host.

#include "param_sync/codec/part.hpp"

#include "gpusock/gpusock.hpp"

#include <cerrno>
#include <cstdint>
#include <string>

namespace param_sync::codec {

class TopK;

/// Of each tensor the floats that changed most are sent, and the rest is kept for later steps.
struct TopKSettings {
  using Codec = TopK;  ///< what kernels have
  /// Of what a rank sends in a step, on average over all steps until then; the last step sends what is left.
  std::uint64_t budget_bytes = 0;
};

/// A float of a tensor, and what is added to it (gradients) or becomes it (weights).
struct Change {
  std::uint32_t index = 0;  ///< of the float in its part
  float value = 0;          ///< what is added, or the new weight
};

/// How many changes a rank may send for each float, so that what it sends in a step has so many bytes, headers
/// included. 0.5 or more: it may send all floats. Throws gpusock::Error (EINVAL) where the headers alone have more.
inline double changes_per_float(const StepTraffic& sent, std::uint64_t budget_bytes) {
  const std::uint64_t headers_bytes = sent.messages * sent.header_bytes;
  if (budget_bytes < headers_bytes) {
    throw gpusock::Error(EINVAL, "a budget of " + std::to_string(budget_bytes) + " bytes: rank " +
                                     std::to_string(sent.rank) + " sends " + std::to_string(sent.messages) +
                                     " messages in a step, whose headers alone have " + std::to_string(headers_bytes) +
                                     " bytes; take more, or ps:even and fusion, which have the fewest messages");
  }
  const auto left = static_cast<double>(budget_bytes - headers_bytes);
  if (left >= static_cast<double>(sent.floats * sizeof(float))) return 0.5;  // also where there are none
  return left / static_cast<double>(sent.floats * sizeof(Change));
}

}  // namespace param_sync::codec
