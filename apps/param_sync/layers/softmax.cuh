#pragma once
/// @file The loss: softmax and cross-entropy of the last layer's outputs.

#include "gpusock/device.cuh"

#include <cmath>
#include <cstdint>

namespace param_sync {

/// Returns the softmax cross-entropy of one sample in nats. `delta` gets the gradient with respect to the logits.
__device__ inline float sample_loss(const float* logits, std::uint32_t classes, std::uint32_t label, float* delta) {
  float largest = logits[0];
  for (std::uint32_t c = 1; c < classes; ++c) largest = logits[c] > largest ? logits[c] : largest;
  float sum = 0.0f;
  for (std::uint32_t c = 0; c < classes; ++c) {
    delta[c] = expf(logits[c] - largest);
    sum += delta[c];
  }
  for (std::uint32_t c = 0; c < classes; ++c) delta[c] = delta[c] / sum - (c == label ? 1.0f : 0.0f);
  return logf(sum) - (logits[label] - largest);
}

/// The class with the largest logit; the first one of equal logits.
__device__ inline std::uint32_t predicted_class(const float* logits, std::uint32_t classes) {
  std::uint32_t best = 0;
  for (std::uint32_t c = 1; c < classes; ++c) best = logits[c] > logits[best] ? c : best;
  return best;
}

}  // namespace param_sync
