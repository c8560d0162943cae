#pragma once
/// @file What of the model is in a pool of device memory that is smaller than the model, and when (--device-pool). The
/// weights, and what else has the model's size, are in host memory (Cui et al., "GeePS", EuroSys 2016).
///
/// All steps use the layers in the same order. So it is known beforehand when a layer's weights are needed again, and
/// those that are needed last make room for others (Belady, 1966).

#include "layout/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace param_sync {

/// A part of the pool that a layer's weights, or its gradients, take for a part of each step.
struct PoolStay {
  /// A stay whose memory this one takes, so it must have ended.
  struct Before {
    std::size_t stay = 0;
    bool in_step_before = false;
  };

  int layer = 0;
  bool is_gradient = false;  ///< else weights, which are copied into the pool when the stay begins
  int first = 0;             ///< the first kernel of a step that uses it: see PoolPlan
  int last = 0;              ///< the last one
  std::uint32_t floats = 0;
  std::uint32_t begin = 0;  ///< where in the pool it is, in floats
  std::vector<Before> after;

  std::uint32_t end() const { return begin + floats; }
};

/// Kernels of a step are numbered in their order, by layers of the model: first those that compute outputs, from the
/// first layer on, then from the last layer on the one that computes errors of the layer's inputs, and the one that
/// computes its gradients. The first layer has no errors of its inputs.
struct PoolPlan {
  std::vector<PoolStay> stays;  ///< in the order of their first kernels
  std::uint32_t floats = 0;     ///< that the pool has
  int layers = 0;
  int ahead = 0;  ///< no kernel that runs so many kernels before a stay's first one, or later, uses the stay's memory

  /// Plans a pool of at most so many bytes. There is room for copies of weights that the next two kernels use, if that
  /// is possible at all; then as many layers as possible keep their weights until their errors are computed. Throws
  /// gpusock::Error (EINVAL) if a layer has no room.
  static PoolPlan make(const Layout& layout, std::uint64_t bytes_max);

  int outputs_kernel(int layer) const { return layer; }
  int errors_kernel(int layer) const { return layers + 2 * (layers - 1 - layer); }
  int gradients_kernel(int layer) const { return errors_kernel(layer) + 1; }
  /// The number of the stay that a kernel uses.
  std::size_t stay_of(int kernel) const;
  /// Bytes of weights that are copied in a step.
  std::uint64_t staged_bytes() const;
};

}  // namespace param_sync
