#include "models/builders.hpp"

namespace param_sync::models {
namespace {

/// Returns a convolution without a bias, with its batch normalization. `side` is the side of its output maps.
Layer convolution(const std::string& name, int outputs, int inputs, int kernel, int side) {
  Layer layer;
  const double weights = static_cast<double>(kernel) * kernel * inputs * outputs;
  layer.name = name;
  layer.parameters = weights + 2.0 * outputs;
  layer.tensors = 3;
  layer.forward_flops = 2 * weights * side * side;
  return layer;
}

}  // namespace

Model resnet50() {
  struct Stage {
    int blocks;
    int width;
    int side;
  };
  constexpr Stage kStages[] = {{3, 64, 56}, {4, 128, 28}, {6, 256, 14}, {3, 512, 7}};
  Model model;
  model.layers.push_back(convolution("stem", 64, 3, 7, 112));
  int inputs = 64, number = 1, side_before = 56;
  for (const Stage& stage : kStages) {
    for (int block = 0; block < stage.blocks; ++block) {
      const std::string name = "layer" + std::to_string(number) + "." + std::to_string(block) + ".";
      const int outputs = 4 * stage.width;
      model.layers.push_back(convolution(name + "conv1", stage.width, inputs, 1, side_before));
      model.layers.push_back(convolution(name + "conv2", stage.width, stage.width, 3, stage.side));
      model.layers.push_back(convolution(name + "conv3", outputs, stage.width, 1, stage.side));
      if (block == 0) model.layers.push_back(convolution(name + "downsample", outputs, inputs, 1, stage.side));
      inputs = outputs;
      side_before = stage.side;
    }
    ++number;
  }
  model.layers.push_back(fully_connected("fc", 1000, inputs));
  return model;
}

}  // namespace param_sync::models
