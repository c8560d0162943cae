#pragma once
/// @file Launches of the model's kernels: forward, loss, backward. All asynchronous, in the order of the stream.

#include "arithmetic/step_board.cuh"
#include "data/samples.hpp"
#include "layout/layout.hpp"

#include "gpusock/gpusock.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace param_sync {

/// Samples that are evaluated together.
inline constexpr std::uint32_t kEvaluationRows = 500;

/// Device buffers for a batch on its way through the model.
class Activations {
 public:
  Activations(gpusock::Context& context, const Layout& layout, std::uint32_t rows_max);

  float* input(int layer) { return values_[layer].data(); }
  float* output(int layer) { return values_[layer + 1].data(); }
  float* output_delta(int layer) { return deltas_[layer].data(); }  ///< gradient by the layer's output
  float* losses() { return losses_.data(); }                        ///< one for each sample
  /// The layer's output so far, once the stream is idle; from the first sample on, as many as `to` takes.
  void copy_output(int layer, std::span<float> to) const { values_[layer + 1].copy_out(to); }
  std::uint32_t rows_max() const { return rows_max_; }

 private:
  std::vector<gpusock::DeviceBuffer<float>> values_;
  std::vector<gpusock::DeviceBuffer<float>> deltas_;
  gpusock::DeviceBuffer<float> losses_;
  std::uint32_t rows_max_;
};

/// What an evaluation adds up; in mapped memory, written by one thread.
struct Score {
  std::uint64_t correct;
  double loss;  ///< sum over the samples, in nats
};

/// A model's kernels on one stream.
class Model {
 public:
  Model(gpusock::Context& context, gpusock::Stream& stream, const Layout& layout)
      : context_(context), stream_(stream), layout_(layout) {}

  /// Images of the first `batch` samples to the first layer's input.
  void gather(SamplesView samples, std::uint32_t batch, Activations& activations);

  /// One layer, from its input to its output. `parameters`: the whole model's.
  void forward(int layer, const float* parameters, std::uint32_t batch, Activations& activations);

  /// The last layer's output delta, the mean loss to `losses[step]`, the device's time to `times_ns[step]`, where
  /// given, and then `board.steps` = step + 1.
  void loss(SamplesView samples, std::uint32_t batch, Activations& activations, float* losses, StepBoard* board,
            std::uint64_t step, std::uint64_t* times_ns = nullptr);

  /// From a layer's output delta to the output delta of the layer before.
  void backward_input(int layer, const float* parameters, std::uint32_t batch, Activations& activations);

  /// The gradient by the layer's parameters, from its output delta. `gradients`: the whole model's.
  void backward_parameters(int layer, std::uint32_t batch, Activations& activations, float* gradients);

  /// Adds the samples that the last layer's output gets right, and their loss, to `score`.
  void score(SamplesView samples, std::uint32_t batch, Activations& activations, Score* score);

  /// gather, all layers' forward and score, for all samples. `parameters` must be complete by then.
  void evaluate(const DeviceSamples& samples, const float* parameters, Activations& activations, Score* score);

  gpusock::LaunchShape shape(unsigned blocks) const;

 private:
  gpusock::Context& context_;
  gpusock::Stream& stream_;
  const Layout& layout_;
};

}  // namespace param_sync
