#pragma once
/// @file Layers of well-known models, for training in virtual time: how many parameters each layer has, and how much it
/// computes. Nothing here trains a model.

#include <string>
#include <vector>

namespace param_sync::models {

/// One layer with its weights and biases.
struct Layer {
  std::string name;
  double parameters = 0;  ///< 0: it only computes
  int tensors = 0;
  double forward_flops = 0;  ///< FLOPs of one sample, two for each multiply-add; the backward pass takes twice as many
  int rows = 0;              ///< outputs of a fully connected layer, whose gradient has factors; 0 for other layers
  int columns = 0;           ///< inputs of a fully connected layer; 0 for other layers
};

struct Model {
  std::string name;
  std::vector<Layer> layers;  ///< in the order of the forward pass

  double parameters() const;
  int tensors() const;
  double forward_flops() const;  ///< FLOPs of one sample
};

/// Returns "vgg16", "vgg19-22k", "resnet50", "gpt2".
const std::vector<std::string>& model_names();

/// Returns the model of this name. Throws std::invalid_argument, which lists the names, if there is none.
///
/// A sample is an image of 224 x 224 pixels, or 1,024 tokens. FLOPs are those of convolutions, matrix products and
/// attention; activations, normalization and the optimizer are left out.
///  - vgg16: Simonyan and Zisserman, 2015, configuration D. vgg19-22k: configuration E with 21,841 classes.
///  - resnet50: He et al., 2016, with the stride in the 3 x 3 convolution. A batch normalization belongs to the layer
///    of its convolution.
///  - gpt2: Radford et al., 2019, "small". The output projection uses the weights of the token embedding, the first
///    layer, so their gradient is complete only when the backward pass ends.
Model model(const std::string& name);

}  // namespace param_sync::models
