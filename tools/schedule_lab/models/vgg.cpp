#include "models/builders.hpp"

namespace param_sync::models {
namespace {

/// Makes five stages of 3 x 3 convolutions, each of which ends by halving the maps, and three fully connected layers.
Model vgg(const std::vector<int>& convolutions_of_stage, int classes) {
  constexpr int kChannels[] = {64, 128, 256, 512, 512};
  Model model;
  int inputs = 3, side = 224;
  for (std::size_t stage = 0; stage < convolutions_of_stage.size(); ++stage, side /= 2) {
    const int outputs = kChannels[stage];
    for (int i = 1; i <= convolutions_of_stage[stage]; ++i) {
      Layer layer;
      layer.name = "conv" + std::to_string(stage + 1) + "_" + std::to_string(i);
      layer.parameters = 9.0 * inputs * outputs + outputs;
      layer.tensors = 2;
      layer.forward_flops = 2.0 * 9 * inputs * outputs * side * side;
      model.layers.push_back(layer);
      inputs = outputs;
    }
  }
  model.layers.push_back(fully_connected("fc6", 4096, inputs * side * side));
  model.layers.push_back(fully_connected("fc7", 4096, 4096));
  model.layers.push_back(fully_connected("fc8", classes, 4096));
  return model;
}

}  // namespace

Layer fully_connected(const std::string& name, int outputs, int inputs) {
  const double weights = static_cast<double>(outputs) * inputs;
  return {name, weights + outputs, 2, 2 * weights, outputs, inputs};
}

Model vgg16() { return vgg({2, 2, 3, 3, 3}, 1000); }
Model vgg19_22k() { return vgg({2, 2, 4, 4, 4}, 21841); }

}  // namespace param_sync::models
