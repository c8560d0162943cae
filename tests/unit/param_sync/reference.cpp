#include "reference.hpp"

#include <algorithm>
#include <cmath>

namespace param_sync::testing {
namespace {

std::vector<double> forward(const Dense& shape, const double* parameters, const double* input) {
  std::vector<double> output(parameters + shape.inputs * shape.outputs, parameters + shape.parameters());
  for (std::uint32_t i = 0; i < shape.inputs; ++i) {
    for (std::uint32_t o = 0; o < shape.outputs; ++o) output[o] += input[i] * parameters[i * shape.outputs + o];
  }
  for (double& value : output) value = shape.activation == Activation::relu ? std::max(value, 0.0) : value;
  return output;
}

std::vector<double> softmax(const std::vector<double>& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> shares;
  double sum = 0;
  for (const double logit : logits) sum += shares.emplace_back(std::exp(logit - largest));
  for (double& share : shares) share /= sum;
  return shares;
}

/// Adds one layer's gradient, and gives the gradient by its input.
std::vector<double> backward(const Dense& shape, const double* parameters, const std::vector<double>& input,
                             const std::vector<double>& delta, double* gradient) {
  std::vector<double> input_delta(shape.inputs, 0.0);
  for (std::uint32_t o = 0; o < shape.outputs; ++o) {
    for (std::uint32_t i = 0; i < shape.inputs; ++i) {
      gradient[i * shape.outputs + o] += input[i] * delta[o];
      input_delta[i] += parameters[i * shape.outputs + o] * delta[o];
    }
    gradient[shape.inputs * shape.outputs + o] += delta[o];
  }
  return input_delta;
}

/// The index of a pixel's channel in an image.
std::size_t place(const ImageShape& image, std::uint32_t row, std::uint32_t column, std::uint32_t channel) {
  return (std::size_t{row} * image.columns + column) * image.channels + channel;
}

/// Calls call(input, weight) with the indices of both factors of each product of a sum, which has this row, column and
/// channel.
template <class Call>
void for_products(const Conv2d& shape, std::uint32_t row, std::uint32_t column, std::uint32_t channel, Call call) {
  for (std::uint32_t y = 0; y < shape.kernel; ++y) {
    for (std::uint32_t x = 0; x < shape.kernel; ++x) {
      for (std::uint32_t from = 0; from < shape.image.channels; ++from) {
        const std::size_t weight = ((std::size_t{y} * shape.kernel + x) * shape.image.channels + from) * shape.channels;
        call(place(shape.image, row + y, column + x, from), weight + channel);
      }
    }
  }
}

/// The largest sum of a window, and its row and column.
struct Largest {
  double sum = 0;
  std::uint32_t row = 0, column = 0;
};

Largest largest_sum(const Conv2d& shape, const double* parameters, const double* input, std::uint32_t row,
                    std::uint32_t column, std::uint32_t channel) {
  Largest largest{-HUGE_VAL};
  for (std::uint32_t y = row * shape.pool; y < (row + 1) * shape.pool; ++y) {
    for (std::uint32_t x = column * shape.pool; x < (column + 1) * shape.pool; ++x) {
      double sum = parameters[shape.parameters() - shape.channels + channel];
      for_products(shape, y, x, channel,
                   [&](std::size_t from, std::size_t weight) { sum += input[from] * parameters[weight]; });
      if (sum > largest.sum) largest = {sum, y, x};
    }
  }
  return largest;
}

/// Calls `call` with the row, column and channel of each output.
template <class Call>
void for_outputs(const Conv2d& shape, Call call) {
  const ImageShape image = shape.output_image();
  for (std::uint32_t row = 0; row < image.rows; ++row) {
    for (std::uint32_t column = 0; column < image.columns; ++column) {
      for (std::uint32_t channel = 0; channel < image.channels; ++channel) call(row, column, channel);
    }
  }
}

std::vector<double> forward(const Conv2d& shape, const double* parameters, const double* input) {
  std::vector<double> output;
  for_outputs(shape, [&](std::uint32_t row, std::uint32_t column, std::uint32_t channel) {
    const double sum = largest_sum(shape, parameters, input, row, column, channel).sum;
    output.push_back(shape.activation == Activation::relu ? std::max(sum, 0.0) : sum);
  });
  return output;
}

/// As with Dense. `delta` is the gradient by the largest sums, of which the outputs were made.
std::vector<double> backward(const Conv2d& shape, const double* parameters, const std::vector<double>& input,
                             const std::vector<double>& delta, double* gradient) {
  std::vector<double> input_delta(shape.inputs, 0.0);
  for_outputs(shape, [&](std::uint32_t row, std::uint32_t column, std::uint32_t channel) {
    const Largest at = largest_sum(shape, parameters, input.data(), row, column, channel);
    const double by_sum = delta[place(shape.output_image(), row, column, channel)];
    gradient[shape.parameters() - shape.channels + channel] += by_sum;
    for_products(shape, at.row, at.column, channel, [&](std::size_t from, std::size_t weight) {
      gradient[weight] += input[from] * by_sum;
      input_delta[from] += parameters[weight] * by_sum;
    });
  });
  return input_delta;
}

/// The outputs of a batch, sample after sample.
template <class Kind>
std::vector<double> forward_all(const Kind& shape, const double* parameters, const std::vector<double>& input,
                                std::size_t batch) {
  std::vector<double> output;
  for (std::size_t sample = 0; sample < batch; ++sample) {
    const std::vector<double> own = forward(shape, parameters, input.data() + sample * shape.inputs);
    output.insert(output.end(), own.begin(), own.end());
  }
  return output;
}

/// Adds one layer's gradient of a batch, and gives the gradient by its inputs.
template <class Kind>
std::vector<double> backward_all(const Kind& shape, const double* parameters, const std::vector<double>& input,
                                 const std::vector<double>& delta, std::size_t batch, double* gradient) {
  std::vector<double> input_delta;
  const auto of_sample = [](const std::vector<double>& all, std::size_t sample, std::size_t floats) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(sample * floats);
    return std::vector<double>(first, first + static_cast<std::ptrdiff_t>(floats));
  };
  for (std::size_t sample = 0; sample < batch; ++sample) {
    const std::vector<double> own = backward(shape, parameters, of_sample(input, sample, shape.inputs),
                                             of_sample(delta, sample, shape.outputs), gradient);
    input_delta.insert(input_delta.end(), own.begin(), own.end());
  }
  return input_delta;
}

/// A channel of a batch, normalized.
struct Normalized {
  double mean = 0, log_variance = 0, rate = 0;
  std::vector<double> values;  ///< the normalized inputs

  Normalized(const BatchNorm& shape, const double* own, const std::vector<double>& input, std::uint32_t channel) {
    std::vector<double> all;
    for (std::size_t i = channel; i < input.size(); i += shape.image.channels) all.push_back(input[i]);
    const auto count = static_cast<double>(all.size());
    double variance = 0;
    for (const double value : all) mean += value / count;
    for (const double value : all) variance += (value - mean) * (value - mean) / count;
    log_variance = std::log(variance + double{BatchNorm::kLeastVariance});
    if (shape.takes_averages) mean = own[BatchNorm::kMean], log_variance = own[BatchNorm::kLogVariance];
    rate = std::exp(-log_variance / 2);
    for (const double value : all) values.push_back((value - mean) * rate);
  }
};

std::vector<double> forward_all(const BatchNorm& shape, const double* parameters, const std::vector<double>& input,
                                std::size_t /*batch*/) {
  std::vector<double> output(input.size());
  for (std::uint32_t channel = 0; channel < shape.image.channels; ++channel) {
    const double* own = parameters + std::size_t{channel} * BatchNorm::kOfChannel;
    const Normalized normalized(shape, own, input, channel);
    for (std::size_t i = 0; i < normalized.values.size(); ++i) {
      const double sum = normalized.values[i] * own[BatchNorm::kScale] + own[BatchNorm::kShift];
      output[i * shape.image.channels + channel] = shape.activation == Activation::relu ? std::max(sum, 0.0) : sum;
    }
  }
  return output;
}

std::vector<double> backward_all(const BatchNorm& shape, const double* parameters, const std::vector<double>& input,
                                 const std::vector<double>& delta, std::size_t batch, double* gradient) {
  std::vector<double> input_delta(input.size());
  for (std::uint32_t channel = 0; channel < shape.image.channels; ++channel) {
    const std::size_t first = std::size_t{channel} * BatchNorm::kOfChannel;
    const double* own = parameters + first;
    const Normalized normalized(shape, own, input, channel);
    double errors = 0, products = 0;
    for (std::size_t i = 0; i < normalized.values.size(); ++i) {
      errors += delta[i * shape.image.channels + channel];
      products += delta[i * shape.image.channels + channel] * normalized.values[i];
    }
    const auto count = static_cast<double>(normalized.values.size());
    for (std::size_t i = 0; i < normalized.values.size(); ++i) {
      input_delta[i * shape.image.channels + channel] = own[BatchNorm::kScale] * normalized.rate *
                                                        (delta[i * shape.image.channels + channel] - errors / count -
                                                         normalized.values[i] * products / count);
    }
    const double averaging = double{BatchNorm::kAveraging} * static_cast<double>(batch);
    gradient[first + BatchNorm::kScale] += products;
    gradient[first + BatchNorm::kShift] += errors;
    gradient[first + BatchNorm::kMean] += averaging * (own[BatchNorm::kMean] - normalized.mean);
    gradient[first + BatchNorm::kLogVariance] += averaging * (own[BatchNorm::kLogVariance] - normalized.log_variance);
  }
  return input_delta;
}

/// True if the layer's negative sums are cut off.
bool is_cut(const Layout& layout, int layer) {
  return layer >= 0 && layout[layer].sums().activation == Activation::relu;
}

}  // namespace

ReferenceResult reference_step(const Layout& layout, const std::vector<double>& parameters,
                               const std::vector<double>& inputs, const std::vector<std::uint8_t>& labels) {
  ReferenceResult result;
  result.gradient.assign(layout.parameters(), 0.0);
  const std::size_t batch = labels.size(), classes = layout.layers.back().outputs();
  std::vector<std::vector<double>> values{inputs};
  for (const Layer& layer : layout.layers) {
    values.push_back(std::visit(
        [&](const auto& kind) { return forward_all(kind, parameters.data() + layer.offset, values.back(), batch); },
        layer.kind));
  }
  result.outputs = {values.begin() + 1, values.end()};
  std::vector<double> delta;
  for (std::size_t sample = 0; sample < batch; ++sample) {
    const auto first = values.back().begin() + static_cast<std::ptrdiff_t>(sample * classes);
    std::vector<double> of_sample = softmax({first, first + static_cast<std::ptrdiff_t>(classes)});
    result.mean_loss -= std::log(of_sample[labels[sample]]) / static_cast<double>(batch);
    of_sample[labels[sample]] -= 1;
    delta.insert(delta.end(), of_sample.begin(), of_sample.end());
  }
  for (int i = layout.size() - 1; i >= 0; --i) {
    const std::uint32_t offset = layout[i].offset;
    const auto& input = values[static_cast<std::size_t>(i)];
    delta = std::visit(
        [&](const auto& kind) {
          return backward_all(kind, parameters.data() + offset, input, delta, batch, result.gradient.data() + offset);
        },
        layout[i].kind);
    for (std::size_t k = 0; k < delta.size(); ++k) delta[k] = is_cut(layout, i - 1) && input[k] <= 0 ? 0 : delta[k];
  }
  return result;
}

}  // namespace param_sync::testing
