#include "arithmetic/model.hpp"

#include "arithmetic/pixels.cuh"
#include "layers/layer.hpp"
#include "layers/softmax.cuh"

#include <algorithm>
#include <type_traits>
#include <variant>

namespace param_sync {
namespace {

/// Input `i` of a sample, with a border of background around it: the number of a row, or a pixel as a float.
__device__ float input_of(const SamplesView& samples, std::uint32_t sample, std::uint32_t border, std::uint32_t i) {
  const std::size_t first = std::size_t{sample} * samples.rows * samples.columns;
  const ImagePlace place(samples.rows, samples.columns, border, i);
  if (samples.values != nullptr) return place.is_inside ? samples.values[first + place.i] : 0;
  return pixel_input(place.is_inside ? samples.images[first + place.i] : 0);
}

/// Copies the inputs of one batch.
__global__ void gather_kernel(SamplesView samples, std::uint32_t border, std::uint32_t batch, float* to) {
  const std::uint32_t inputs = (samples.rows + 2 * border) * (samples.columns + 2 * border);
  for (std::uint32_t b = blockIdx.x; b < batch; b += gridDim.x) {
    for (std::uint32_t i = threadIdx.x; i < inputs; i += blockDim.x) {
      to[std::size_t{b} * inputs + i] = input_of(samples, samples.order[b], border, i);
    }
  }
}

template <class Kind>
__global__ void forward_kernel(Kind layer, const float* parameters, const float* input, std::uint32_t batch,
                               LayerOutput output) {
  forward(layer, parameters, input, batch, output);
}

template <class Kind>
__global__ void share_forward_kernel(Kind layer, const float* input, std::uint32_t batch, float* own) {
  share_forward(layer, input, batch, own);
}

template <class Kind>
__global__ void share_backward_kernel(Kind layer, const float* input, const float* delta, std::uint32_t batch,
                                      float* own) {
  share_backward(layer, input, delta, batch, own);
}

template <class Kind>
__global__ void backward_input_kernel(Kind layer, Sums below, const float* parameters, const float* delta,
                                      const float* input, std::uint32_t batch, float* input_delta) {
  backward_input(layer, parameters, delta, input, batch, below, input_delta);
}

template <class Kind>
__global__ void backward_parameters_kernel(Kind layer, const float* parameters, const float* input, const float* delta,
                                           std::uint32_t batch, float* gradient) {
  backward_parameters(layer, parameters, blockIdx.x, input, delta, batch, gradient);
}

/// Sums the losses in the order of the samples. One thread calls it, after a barrier.
__device__ double ordered_sum(const float* losses, std::uint32_t batch) {
  double sum = 0;
  for (std::uint32_t b = 0; b < batch; ++b) sum += losses[b];
  return sum;
}

/// One block, so that one thread can sum in order.
__global__ void loss_kernel(SamplesView samples, const float* logits, std::uint32_t classes, std::uint32_t batch,
                            float rate_share, float* delta, float* losses, float* step_losses, StepBoard* board,
                            std::uint64_t step, std::uint64_t* times_ns) {
  for (std::uint32_t b = threadIdx.x; b < batch; b += blockDim.x) {
    float* const errors = delta + std::size_t{b} * classes;
    losses[b] = sample_loss(logits + std::size_t{b} * classes, classes, samples.labels[samples.order[b]], errors);
    for (std::uint32_t c = 0; c < classes; ++c) errors[c] *= rate_share;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  step_losses[step] = static_cast<float>(ordered_sum(losses, batch) / batch);
  if (times_ns != nullptr) times_ns[step] = gpusock::clock_ns();
  board->publish(step + 1);
}

/// One block, for the same reason as loss_kernel.
__global__ void score_kernel(SamplesView samples, const float* logits, std::uint32_t classes, std::uint32_t batch,
                             float* delta, float* losses, Score* score) {
  int correct = 0;
  for (std::uint32_t first = 0; first < batch; first += blockDim.x) {
    const std::uint32_t b = first + threadIdx.x;
    bool right = false;
    if (b < batch) {
      const float* sample_logits = logits + std::size_t{b} * classes;
      const std::uint32_t label = samples.labels[samples.order[b]];
      losses[b] = sample_loss(sample_logits, classes, label, delta + std::size_t{b} * classes);
      right = predicted_class(sample_logits, classes) == label;
    }
    correct += __syncthreads_count(right);
  }
  if (threadIdx.x != 0) return;
  score->correct += static_cast<std::uint64_t>(correct);
  score->loss += ordered_sum(losses, batch);
}

}  // namespace

Activations::Activations(gpusock::Context& context, const Layout& layout, std::uint32_t rows_max)
    : losses_(context, rows_max), rows_max_(rows_max) {
  values_.emplace_back(context, std::size_t{rows_max} * layout[0].inputs());
  for (const Layer& layer : layout.layers) {
    values_.emplace_back(context, std::size_t{rows_max} * layer.outputs());
    deltas_.emplace_back(context, std::size_t{rows_max} * layer.sum_count());
  }
}

gpusock::LaunchShape Model::shape(unsigned blocks) const {
  return {.grid = blocks, .block = threads_, .shared_bytes = 0, .stream = &stream_, .blocks_share_threads = true};
}

void Model::gather(SamplesView samples, std::uint32_t batch, Activations& activations) {
  gpusock::launch(context_, shape((batch + 7) / 8), gather_kernel, samples, layout_.border, batch,
                  activations.input(0));
}

void Model::forward(int layer, const float* parameters, std::uint32_t batch, Activations& activations) {
  std::visit([&](const auto& kind) { launch_forward(kind, layer, parameters, batch, activations); },
             layout_[layer].kind);
}

template <class Kind>
void Model::launch_forward(const Kind& kind, int layer, const float* parameters, std::uint32_t batch,
                           Activations& activations) {
  gpusock::launch(context_, shape(kind.forward_blocks(batch)), forward_kernel<Kind>, kind,
                  parameters + layout_[layer].offset, activations.input(layer), batch, activations.output(layer));
}

void Model::share_forward(int layer, std::uint32_t batch, Activations& activations, float* own) {
  const auto launch = [&]<class Kind>(const Kind& kind) {
    if constexpr (SharesNumbers<Kind>) {
      gpusock::launch(context_, shape(kind.forward_blocks(batch)), share_forward_kernel<Kind>, kind,
                      activations.input(layer), batch, own);
    }
  };
  std::visit(launch, layout_[layer].kind);
}

void Model::share_backward(int layer, std::uint32_t batch, Activations& activations, float* own) {
  const auto launch = [&]<class Kind>(const Kind& kind) {
    if constexpr (SharesNumbers<Kind>) {
      gpusock::launch(context_, shape(kind.backward_blocks(batch)), share_backward_kernel<Kind>, kind,
                      activations.input(layer), activations.output_delta(layer), batch, own);
    }
  };
  std::visit(launch, layout_[layer].kind);
}

void Model::loss(SamplesView samples, std::uint32_t batch, Activations& activations, float rate_share, float* losses,
                 StepBoard* board, std::uint64_t step, std::uint64_t* times_ns) {
  const int last = layout_.size() - 1;
  gpusock::launch(context_, shape(1), loss_kernel, samples, activations.output(last).values, layout_[last].outputs(),
                  batch, rate_share, activations.output_delta(last), activations.losses(), losses, board, step,
                  times_ns);
}

void Model::backward_input(int layer, const float* parameters, std::uint32_t batch, Activations& activations) {
  const Layer& at = layout_[layer];
  const auto launch = [&](const auto& kind) {
    gpusock::launch(context_, shape(kind.backward_blocks(batch)), backward_input_kernel<std::decay_t<decltype(kind)>>,
                    kind, layout_[layer - 1].sums(), parameters + at.offset, activations.output_delta(layer),
                    activations.input(layer), batch, activations.output_delta(layer - 1));
  };
  std::visit(launch, at.kind);
}

void Model::backward_parameters(int layer, const float* parameters, std::uint32_t batch, Activations& activations,
                                float* gradients) {
  const Layer& at = layout_[layer];
  const auto launch = [&](const auto& kind) {
    gpusock::launch(context_, shape(kind.blocks()), backward_parameters_kernel<std::decay_t<decltype(kind)>>, kind,
                    parameters + at.offset, activations.input(layer), activations.output_delta(layer), batch,
                    gradients + at.offset);
  };
  std::visit(launch, at.kind);
}

void Model::score(SamplesView samples, std::uint32_t batch, Activations& activations, Score* score) {
  const int last = layout_.size() - 1;
  gpusock::launch(context_, shape(1), score_kernel, samples, activations.output(last).values, layout_[last].outputs(),
                  batch, activations.output_delta(last), activations.losses(), score);
}

void Model::evaluate(const DeviceSamples& samples, const float* parameters, Activations& activations, Score* result) {
  constexpr std::size_t kQueuedRowsMax = 10'000;  // a stream has room for the launches of so many samples
  const std::size_t all = samples.visits();
  std::size_t queued = 0;
  for (std::size_t first = 0; first < all; first += activations.rows_max()) {
    const auto batch = static_cast<std::uint32_t>(std::min<std::size_t>(activations.rows_max(), all - first));
    gather(samples.from(first), batch, activations);
    for (int layer = 0; layer < layout_.size(); ++layer) {
      std::visit([&](const auto& kind) { launch_forward(evaluated(kind), layer, parameters, batch, activations); },
                 layout_[layer].kind);
    }
    score(samples.from(first), batch, activations, result);
    queued += batch;
    if (queued < kQueuedRowsMax) continue;
    stream_.synchronize();
    queued = 0;
  }
}

}  // namespace param_sync
