#pragma once
/// @file Batch normalization of the channels of images (Ioffe and Szegedy, ICML 2015): its sizes and parameters, and
/// what kernels compute of it.

#include "layers/conv2d.hpp"

#include "gpusock/groups.cuh"

#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace param_sync {

/// Where the numbers are that nodes share within a step: those of rank 0, then those of rank 1, and so on.
struct SharedNumbers {
  const float* forward = nullptr;   ///< for the outputs
  const float* backward = nullptr;  ///< for the errors of the inputs
  std::uint32_t ranks = 1;
};

/// outputs = activation(scale * (input - mean) / sqrt(variance + kLeastVariance) + shift), with numbers of each
/// channel. In training, mean and variance are those of all pixels of the batch; else averages over the batches of the
/// training.
///
/// The batch is that of the node, or that of all nodes (synchronized batch norm): then they share the sums of each
/// channel within a step, once before the outputs, and once before the errors of the inputs.
///
/// A channel has four parameters: scale, shift, and the averages of means and of logarithms of variances. The averages
/// are exchanged and updated as all parameters, so they are the same on all nodes, whatever the scheme: their gradient
/// is that of kAveraging / 2 * (average - value of the batch)^2. So the learning rate and the momentum decide over how
/// many steps they go: about (1 - momentum) / (kAveraging * rate). With momentum an average may go beyond the values at
/// first; a logarithm may, and a variance may not. Kernels take it by value.
struct BatchNorm {
  static constexpr bool kHasFactors = false;
  static constexpr std::uint32_t kScale = 0, kShift = 1, kMean = 2, kLogVariance = 3, kOfChannel = 4;  ///< parameters
  static constexpr float kLeastVariance = 1e-5f;
  static constexpr float kAveraging = 0.1f;

  ImageShape image;
  Activation activation = Activation::none;
  std::uint32_t inputs = 0;
  std::uint32_t outputs = 0;
  bool takes_averages = false;  ///< instead of the batch's mean and variance
  bool of_all_nodes = false;    ///< the batch is that of all nodes
  SharedNumbers shared;         ///< with of_all_nodes: set before kernels run in training

  static BatchNorm of(ImageShape image, Activation activation, bool of_all_nodes = false) {
    return {image, activation, image.floats(), image.floats(), false, of_all_nodes, {}};
  }

  /// How many numbers a node shares with all others before the outputs, and as many before the errors of the inputs.
  std::uint32_t shared_floats() const { return of_all_nodes ? 2 * image.channels : 0; }

  GPUSOCK_FN std::uint32_t parameters() const { return kOfChannel * image.channels; }
  std::string name() const { return "batch norm " + std::to_string(image.channels); }
  std::string description() const {
    return name() + " of " + std::to_string(image.rows) + " x " + std::to_string(image.columns) + " " +
           name_of(activation) + (of_all_nodes ? " of all nodes" : "");
  }
  std::vector<TensorShape> tensors() const { return {{"scale_shift_mean_logvariance", {image.channels, kOfChannel}}}; }
  /// Outputs are normalized inputs, and averages those of normalized ones.
  void initialize(std::span<float> parameters, const std::function<float()>& /*symmetric*/) const {
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] = i % kOfChannel == kScale ? 1.0f : 0.0f;
  }

  /// A block computes a channel.
  GPUSOCK_FN std::uint32_t blocks() const { return image.channels; }
  GPUSOCK_FN Range block_range(std::uint32_t block) const { return {block * kOfChannel, (block + 1) * kOfChannel}; }
  unsigned forward_blocks(std::uint32_t /*batch*/) const { return image.channels; }
  unsigned backward_blocks(std::uint32_t /*batch*/) const { return image.channels; }

  std::uint32_t sum_count() const { return outputs; }
  Sums sums() const { return {activation}; }
  bool has_activation() const { return activation != Activation::none; }
};

/// After a training, outputs depend on no other sample.
inline BatchNorm evaluated(BatchNorm layer) {
  layer.takes_averages = true;
  return layer;
}

#if defined(__CUDACC__) || GPUSOCK_KERNELS_ON_CPU

/// Two sums that are made together.
struct TwoSums {
  float first = 0, second = 0;
};

/// The part of them that a thread has. It is exact enough that it hardly matters how many threads share the pixels.
struct OwnSums {
  double first = 0, second = 0;
};

/// Adds what all threads of the block have, in the order of threads. Block-collective.
__device__ inline TwoSums sum_of_block(const OwnSums& own) {
  GPUSOCK_SHARED(of_thread, OwnSums[kBlockTiles]);
  of_thread[threadIdx.x] = own;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned i = 1; i < blockDim.x; ++i) {
      of_thread[0].first += of_thread[i].first;
      of_thread[0].second += of_thread[i].second;
    }
  }
  __syncthreads();
  const TwoSums all{static_cast<float>(of_thread[0].first), static_cast<float>(of_thread[0].second)};
  __syncthreads();  // the next sum may begin
  return all;
}

/// A channel of a batch.
struct ChannelOfBatch {
  std::uint32_t channel, channels;
  std::uint32_t pixels;  ///< of all samples

  __device__ ChannelOfBatch(const BatchNorm& layer, std::uint32_t number, std::uint32_t batch)
      : channel(number), channels(layer.image.channels), pixels(batch * layer.image.rows * layer.image.columns) {}

  /// Calls `call` with the index of each of this thread's pixels in the batch.
  template <class Call>
  __device__ __forceinline__ void for_pixels(Call call) const {
    for (std::uint32_t i = threadIdx.x; i < pixels; i += blockDim.x) call(i * channels + channel);
  }
};

/// What a channel is normalized by.
struct Moments {
  float mean = 0, variance = 0;

  __device__ float rate() const { return 1.0f / sqrtf(variance + BatchNorm::kLeastVariance); }
  __device__ float log_variance() const { return logf(variance + BatchNorm::kLeastVariance); }
};

/// Returns the moments of a channel. Block-collective.
__device__ inline Moments moments_of(const ChannelOfBatch& at, const float* input) {
  const auto count = static_cast<float>(at.pixels);
  OwnSums own;
  at.for_pixels([&](std::uint32_t i) { own.first += input[i]; });
  Moments moments{sum_of_block(own).first / count, 0};
  OwnSums squares;
  at.for_pixels([&](std::uint32_t i) {
    const float away = input[i] - moments.mean;
    squares.first += double{away} * away;
  });
  moments.variance = sum_of_block(squares).first / count;
  return moments;
}

/// Returns the moments of a channel of all ranks' batches, which are equally large (Chan, Golub and LeVeque, 1979).
__device__ inline Moments shared_moments(const BatchNorm& layer, std::uint32_t channel) {
  const float* const first = layer.shared.forward + std::size_t{channel} * 2;
  const std::size_t stride = std::size_t{layer.image.channels} * 2;
  const auto ranks = static_cast<float>(layer.shared.ranks);
  Moments all;
  for (std::uint32_t rank = 0; rank < layer.shared.ranks; ++rank) all.mean += first[rank * stride];
  all.mean /= ranks;
  for (std::uint32_t rank = 0; rank < layer.shared.ranks; ++rank) {
    const float away = first[rank * stride] - all.mean;
    all.variance += multiply_add(away, away, first[rank * stride + 1]);
  }
  all.variance /= ranks;
  return all;
}

/// Returns the moments of the batch by which a channel is normalized. Block-collective.
__device__ inline Moments batch_moments(const BatchNorm& layer, const ChannelOfBatch& at, const float* input) {
  return layer.of_all_nodes ? shared_moments(layer, at.channel) : moments_of(at, input);
}

/// Returns the sums of a channel's errors, and of their products with the normalized inputs. Block-collective.
__device__ inline TwoSums error_sums(const ChannelOfBatch& at, const Moments& moments, const float* input,
                                     const float* delta) {
  const float rate = moments.rate();
  OwnSums own;
  at.for_pixels([&](std::uint32_t i) {
    own.first += delta[i];
    own.second += double{delta[i]} * ((input[i] - moments.mean) * rate);
  });
  return sum_of_block(own);
}

/// Writes the numbers that a node shares with all others before the outputs: mean and variance of its part of the
/// batch, by channel.
__device__ inline void share_forward(const BatchNorm& layer, const float* input, std::uint32_t batch, float* own) {
  const ChannelOfBatch at(layer, blockIdx.x, batch);
  const Moments moments = moments_of(at, input);
  if (threadIdx.x != 0) return;
  own[at.channel * 2] = moments.mean;
  own[at.channel * 2 + 1] = moments.variance;
}

/// Writes the numbers that a node shares with all others before the errors of the inputs: error_sums(), by channel.
__device__ inline void share_backward(const BatchNorm& layer, const float* input, const float* delta,
                                      std::uint32_t batch, float* own) {
  const ChannelOfBatch at(layer, blockIdx.x, batch);
  const TwoSums errors = error_sums(at, batch_moments(layer, at, input), input, delta);
  if (threadIdx.x != 0) return;
  own[at.channel * 2] = errors.first;
  own[at.channel * 2 + 1] = errors.second;
}

/// Returns error_sums() of the whole batch. Block-collective.
__device__ inline TwoSums batch_errors(const BatchNorm& layer, const ChannelOfBatch& at, const Moments& moments,
                                       const float* input, const float* delta) {
  if (!layer.of_all_nodes) return error_sums(at, moments, input, delta);
  const float* const first = layer.shared.backward + std::size_t{at.channel} * 2;
  TwoSums all;
  for (std::uint32_t rank = 0; rank < layer.shared.ranks; ++rank) {
    all.first += first[std::size_t{rank} * layer.image.channels * 2];
    all.second += first[std::size_t{rank} * layer.image.channels * 2 + 1];
  }
  return all;
}

/// Computes the outputs of a channel of a batch.
__device__ inline void forward_channel(const BatchNorm& layer, std::uint32_t channel, const float* parameters,
                                       const float* input, std::uint32_t batch, LayerOutput output) {
  const ChannelOfBatch at(layer, channel, batch);
  const float* const own = parameters + std::size_t{at.channel} * BatchNorm::kOfChannel;
  float mean = own[BatchNorm::kMean], rate = expf(-0.5f * own[BatchNorm::kLogVariance]);
  if (!layer.takes_averages) {
    const Moments moments = batch_moments(layer, at, input);
    mean = moments.mean;
    rate = moments.rate();
  }
  const float scale = own[BatchNorm::kScale], shift = own[BatchNorm::kShift];
  at.for_pixels([&](std::uint32_t i) {
    output.values[i] = activate(layer.activation, multiply_add((input[i] - mean) * rate, scale, shift));
  });
}

/// Computes the outputs of a batch.
__device__ inline void forward(const BatchNorm& layer, const float* parameters, const float* input, std::uint32_t batch,
                               LayerOutput output) {
  for (std::uint32_t channel = blockIdx.x; channel < layer.image.channels; channel += gridDim.x) {
    forward_channel(layer, channel, parameters, input, batch, output);
  }
}

/// Computes the gradient with respect to the sums of the layer below, of which `input` was made.
__device__ inline void backward_input(const BatchNorm& layer, const float* parameters, const float* delta,
                                      const float* input, std::uint32_t batch, const Sums& below, float* input_delta) {
  const ChannelOfBatch at(layer, blockIdx.x, batch);
  const Moments moments = batch_moments(layer, at, input);
  const TwoSums errors = batch_errors(layer, at, moments, input, delta);
  const float count = static_cast<float>(at.pixels) * static_cast<float>(layer.of_all_nodes ? layer.shared.ranks : 1);
  const float mean_error = errors.first / count, mean_product = errors.second / count, rate = moments.rate();
  const float scale = parameters[std::size_t{at.channel} * BatchNorm::kOfChannel + BatchNorm::kScale];
  at.for_pixels([&](std::uint32_t i) {
    const float normalized = (input[i] - moments.mean) * rate;
    const float error = multiply_add(-normalized, mean_product, delta[i] - mean_error);
    below.backward(i, input[i], error * (rate * scale), input_delta);
  });
}

/// Computes the gradient with respect to the parameters of a channel, summed over the batch.
template <class Gradient>
__device__ __forceinline__ void backward_parameters(const BatchNorm& layer, const float* parameters,
                                                    std::uint32_t block, const float* input, const float* delta,
                                                    std::uint32_t batch, const Gradient& gradient) {
  const ChannelOfBatch at(layer, block, batch);
  const Moments moments = batch_moments(layer, at, input);
  const TwoSums errors = error_sums(at, moments, input, delta);  // of this node: gradients of nodes are summed
  if (threadIdx.x != 0) return;
  const std::size_t first = std::size_t{block} * BatchNorm::kOfChannel;
  const float* const own = parameters + first;
  const float averaging = BatchNorm::kAveraging * static_cast<float>(batch);  // gradients are sums over samples
  gradient[first + BatchNorm::kScale] = errors.second;
  gradient[first + BatchNorm::kShift] = errors.first;
  gradient[first + BatchNorm::kMean] = averaging * (own[BatchNorm::kMean] - moments.mean);
  gradient[first + BatchNorm::kLogVariance] = averaging * (own[BatchNorm::kLogVariance] - moments.log_variance());
}

#endif

}  // namespace param_sync
