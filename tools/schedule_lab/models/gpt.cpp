#include "models/builders.hpp"

namespace param_sync::models {
namespace {

constexpr double kTokens = 1024, kWidth = 768, kVocabulary = 50257;

/// Returns a layer whose matrix each token uses once. It has no factors: they would have two vectors for each token.
Layer linear(const std::string& name, double outputs, double inputs) {
  Layer layer;
  layer.name = name;
  layer.parameters = outputs * inputs + outputs;
  layer.tensors = 2;
  layer.forward_flops = 2 * outputs * inputs * kTokens;
  return layer;
}

Layer plain(const std::string& name, double parameters, int tensors) {
  Layer layer;
  layer.name = name;
  layer.parameters = parameters;
  layer.tensors = tensors;
  return layer;
}

}  // namespace

Model gpt2() {
  Model model;
  model.layers.push_back(plain("wte", kVocabulary * kWidth, 1));
  model.layers.push_back(plain("wpe", kTokens * kWidth, 1));
  for (int block = 0; block < 12; ++block) {
    const std::string name = "h" + std::to_string(block) + ".";
    model.layers.push_back(plain(name + "ln_1", 2 * kWidth, 2));
    model.layers.push_back(linear(name + "c_attn", 3 * kWidth, kWidth));
    model.layers.back().forward_flops += 2 * 2 * kTokens * kTokens * kWidth;  // scores, and sums of values
    model.layers.push_back(linear(name + "c_proj", kWidth, kWidth));
    model.layers.push_back(plain(name + "ln_2", 2 * kWidth, 2));
    model.layers.push_back(linear(name + "c_fc", 4 * kWidth, kWidth));
    model.layers.push_back(linear(name + "mlp.c_proj", kWidth, 4 * kWidth));
  }
  model.layers.push_back(plain("ln_f", 2 * kWidth, 2));
  model.layers.push_back(plain("logits", 0, 0));
  model.layers.back().forward_flops = 2 * kVocabulary * kWidth * kTokens;
  return model;
}

}  // namespace param_sync::models
