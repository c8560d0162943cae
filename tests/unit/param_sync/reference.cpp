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

std::vector<double> forward(const Layer& layer, const double* parameters, const double* input) {
  return std::visit([&](const auto& kind) { return forward(kind, parameters, input); }, layer.kind);
}

std::vector<double> backward(const Layer& layer, const double* parameters, const std::vector<double>& input,
                             const std::vector<double>& delta, double* gradient) {
  return std::visit([&](const auto& kind) { return backward(kind, parameters, input, delta, gradient); }, layer.kind);
}

/// True if the layer's negative sums are cut off.
bool is_cut(const Layout& layout, int layer) {
  return layer >= 0 && layout[layer].sums().activation == Activation::relu;
}

}  // namespace

ReferenceResult reference_step(const Layout& layout, const std::vector<double>& parameters,
                               const std::vector<double>& inputs, const std::vector<std::uint8_t>& labels) {
  ReferenceResult result;
  result.outputs.resize(layout.layers.size());
  result.gradient.assign(layout.parameters(), 0.0);
  const std::size_t width = layout[0].inputs();
  for (std::size_t sample = 0; sample < labels.size(); ++sample) {
    std::vector<std::vector<double>> values{{inputs.begin() + static_cast<std::ptrdiff_t>(sample * width),
                                             inputs.begin() + static_cast<std::ptrdiff_t>((sample + 1) * width)}};
    for (int i = 0; i < layout.size(); ++i) {
      const double* own = parameters.data() + layout[i].offset;
      values.push_back(forward(layout[i], own, values.back().data()));
      auto& all = result.outputs[static_cast<std::size_t>(i)];
      all.insert(all.end(), values.back().begin(), values.back().end());
    }
    std::vector<double> delta = softmax(values.back());
    result.mean_loss -= std::log(delta[labels[sample]]) / static_cast<double>(labels.size());
    delta[labels[sample]] -= 1;
    for (int i = layout.size() - 1; i >= 0; --i) {
      const std::uint32_t offset = layout[i].offset;
      const auto& input = values[static_cast<std::size_t>(i)];
      delta = backward(layout[i], parameters.data() + offset, input, delta, result.gradient.data() + offset);
      for (std::uint32_t k = 0; k < layout[i].inputs(); ++k)
        delta[k] = is_cut(layout, i - 1) && input[k] <= 0 ? 0 : delta[k];
    }
  }
  return result;
}

}  // namespace param_sync::testing
