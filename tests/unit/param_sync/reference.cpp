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

/// True if the layer's negative sums are cut off.
bool is_cut(const Layout& layout, int layer) {
  return layer >= 0 && std::get<Dense>(layout[layer].kind).activation == Activation::relu;
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
      values.push_back(forward(std::get<Dense>(layout[i].kind), own, values.back().data()));
      auto& all = result.outputs[static_cast<std::size_t>(i)];
      all.insert(all.end(), values.back().begin(), values.back().end());
    }
    std::vector<double> delta = softmax(values.back());
    result.mean_loss -= std::log(delta[labels[sample]]) / static_cast<double>(labels.size());
    delta[labels[sample]] -= 1;
    for (int i = layout.size() - 1; i >= 0; --i) {
      const auto& shape = std::get<Dense>(layout[i].kind);
      const std::uint32_t offset = layout[i].offset;
      const auto& input = values[static_cast<std::size_t>(i)];
      delta = backward(shape, parameters.data() + offset, input, delta, result.gradient.data() + offset);
      for (std::uint32_t k = 0; k < shape.inputs; ++k) delta[k] = is_cut(layout, i - 1) && input[k] <= 0 ? 0 : delta[k];
    }
  }
  return result;
}

}  // namespace param_sync::testing
