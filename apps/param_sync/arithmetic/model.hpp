#pragma once
/// @file Launches the model's kernels: forward, loss, backward. They run asynchronously, in the order of the stream.

#include "arithmetic/step_board.cuh"
#include "data/samples.hpp"
#include "layout/layout.hpp"

#include "gpusock/gpusock.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace param_sync {

/// Number of samples that are evaluated together.
inline constexpr std::uint32_t kEvaluationRows = 500;

/// Device buffers for a batch on its way through the model.
class Activations {
 public:
  Activations(gpusock::Context& context, const Layout& layout, std::uint32_t rows_max);

  float* input(int layer) { return values_[layer].data(); }
  LayerOutput output(int layer) { return {values_[layer + 1].data(), deltas_[layer].data()}; }
  float* output_delta(int layer) { return deltas_[layer].data(); }  ///< gradient with respect to the layer's sums
  float* losses() { return losses_.data(); }                        ///< one for each sample
  /// Copies the layer's output, from the first sample on, as many floats as `to` holds. The stream must be idle.
  void copy_output(int layer, std::span<float> to) const { values_[layer + 1].copy_out(to); }
  std::uint32_t rows_max() const { return rows_max_; }

 private:
  std::vector<gpusock::DeviceBuffer<float>> values_;
  std::vector<gpusock::DeviceBuffer<float>> deltas_;
  gpusock::DeviceBuffer<float> losses_;
  std::uint32_t rows_max_;
};

/// The sums of an evaluation; in mapped memory, written by one thread.
struct Score {
  std::uint64_t correct;
  double loss;  ///< sum over the samples, in nats
};

/// A model's kernels on one stream.
class Model {
 public:
  /// `threads` of a block: 1 to kBlockTiles.
  Model(gpusock::Context& context, gpusock::Stream& stream, const Layout& layout, unsigned threads = kComputeThreads)
      : context_(context), stream_(stream), layout_(layout), threads_(threads) {}

  /// Converts the images of the first `batch` samples, and the layout's border, to the first layer's input.
  void gather(SamplesView samples, std::uint32_t batch, Activations& activations);

  /// Computes one layer's output from its input. `parameters`: the whole model's.
  void forward(int layer, const float* parameters, std::uint32_t batch, Activations& activations);

  /// Computes the numbers that a layer shares with all nodes before its output, or before the output delta of the layer
  /// before. `own`: where those of this node go. The layer must have such numbers (Layer::shared_floats).
  void share_forward(int layer, std::uint32_t batch, Activations& activations, float* own);
  void share_backward(int layer, std::uint32_t batch, Activations& activations, float* own);

  /// Computes the last layer's output delta, times `rate_share` (Plan::rate_share). Stores the mean loss in
  /// `losses[step]` and, if `times_ns` is given, the device's time in `times_ns[step]`. Then publishes `step` + 1 on
  /// the board.
  void loss(SamplesView samples, std::uint32_t batch, Activations& activations, float rate_share, float* losses,
            StepBoard* board, std::uint64_t step, std::uint64_t* times_ns = nullptr);

  /// Computes the output delta of the layer before from the output delta of `layer`.
  void backward_input(int layer, const float* parameters, std::uint32_t batch, Activations& activations);

  /// Computes the parameters' gradient of a layer from its output delta. `parameters` and `gradients`: the whole
  /// model's.
  void backward_parameters(int layer, const float* parameters, std::uint32_t batch, Activations& activations,
                           float* gradients);

  /// Adds to `score` the number of samples that the last layer's output gets right, and the loss of all samples.
  void score(SamplesView samples, std::uint32_t batch, Activations& activations, Score* score);

  /// Runs gather, all layers' forward, as after the training, and score for all samples. May wait for the stream.
  /// `parameters` must be whole.
  void evaluate(const DeviceSamples& samples, const float* parameters, Activations& activations, Score* score);

  gpusock::LaunchShape shape(unsigned blocks) const;

 private:
  template <class Kind>
  void launch_forward(const Kind& kind, int layer, const float* parameters, std::uint32_t batch,
                      Activations& activations);

  gpusock::Context& context_;
  gpusock::Stream& stream_;
  const Layout& layout_;
  const unsigned threads_;
};

}  // namespace param_sync
